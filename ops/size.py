"""Count lines of code by package and compare them with the limits: `ops/size`.

A line counts if it has code: no comment, docstring, import or blank line. Exit code 1 if the
product or the tests have more lines than their total, or a package more than its row. Only Python
is counted, without modules that a program writes.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
OTHER = "everything else"
GENERATED = '"""Generated from'
"""The beginning that marks a generated module. People read the source that it was generated
from."""
TOTALS = {"product": 78_510, "tests": 70_030}
"""Code lines in all packages, and in the tests. A higher total is a decision, with its reason in
the commit; lower the totals when code was removed."""
ROWS = {
    "doctor": 5_690, "hub": 13_200, "child": 400, "spark": 4_840, "kernel": 3_580, "backup": 3_560,
    "courier": 4_420, "export": 2_760, "broker": 3_160, "sdk": 3_760, "outbox": 3_150,
    "web": 3_060, "workspace, recovery, upgrade": 2_290, "busfile, bus": 3_860,
    "jobs": 2_570, "network, relay": 6_810, "monitoring": 2_190,
    OTHER: 10_060,
}  # fmt: skip
"""How far each package may grow at the others' cost: 2 % above its lines when the row was set."""
LIMITS = ROWS | TOTALS
# Folders and files for rows that are more than a package, including checks and integrations.
PARTS = {
    "tests": ("tests/", "examples/"),  # users copy the examples; tests run them
    "jobs": ("appliance/jobs/", "appliance/integrations/jobs_"),
    "network, relay": (
        "appliance/relay/", "appliance/sdk/network/", "appliance/mailbox/",
        "appliance/integrations/relay_",
    ),
    "monitoring": (
        "appliance/monitoring/", "appliance/operations/", "appliance/integrations/notify_",
        "appliance/web/write_gate.py",
        "appliance/audit/", "ops/monitoring/",
    ),
}  # fmt: skip
NO_CODE = re.compile(r"\s*(#|$)")
LONG_STRING = re.compile(rb"[rbfuRBFU]*(\"{3}|'{3})")


def count(text: str) -> int:
    """Return a module's code lines. Raises SyntaxError."""
    lines = text.split("\n")
    counted = {number for number, line in enumerate(lines, 1) if NO_CODE.match(line) is None}
    passed_over: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant | ast.JoinedStr):
            # In a long string, blank lines and comment-like lines count too.
            if LONG_STRING.match(lines[node.lineno - 1].encode(), node.col_offset):
                counted.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            continue
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node, clean=False) is None:
                continue
            node = node.body[0]
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        passed_over.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(counted - passed_over)


def package_of(path: str) -> str:
    """Return a file's row, by its path from the root folder. Checks count for the doctor, also
    in a subsystem's folder, except those in PARTS."""
    for row, prefixes in PARTS.items():
        if path.startswith(prefixes):
            return row
    parts = path.split("/")
    if parts[0] == "appliance" and any(part.startswith("checks") for part in parts):
        return "doctor"
    name = parts[1] if parts[0] == "appliance" and len(parts) > 2 else parts[0]
    return next((row for row in ROWS if name in row.split(", ")), OTHER)


def sizes(root: Path = ROOT) -> Counter[str]:
    """Return the code lines per row and for the product, in files that Git knows."""
    listed = subprocess.check_output(["git", "ls-files", "-z", "*.py"], cwd=root, text=True)
    counted: Counter[str] = Counter()
    for path in filter(None, listed.split("\0")):
        text = (root / path).read_text("utf-8")
        if not text.startswith(GENERATED):
            counted[package_of(path)] += count(text)
    counted["product"] = counted.total() - counted["tests"]
    return counted


def above_limits(counted: Counter[str]) -> list[str]:
    """Name the rows above their limits."""
    return [row for row, limit in LIMITS.items() if counted[row] > limit]


def main() -> int:
    counted = sizes()
    print(f"{'package':30} {'lines':>7} {'limit':>7}")
    for row, limit in LIMITS.items():
        print(f"{row:30} {counted[row]:7,} {limit:7,}")
    above = above_limits(counted)
    for row in above:
        print(f"ops/size: {row} is above its limit: remove code, or decide about ops/size.py")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
