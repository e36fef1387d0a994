"""Counts lines of code by package and compares them with the package's budget: ops/size

A line counts if it has code: no comment, docstring, import or blank line. Exit code 1 if a
package is above its budget. Only Python is counted, without modules that a program writes.
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
"""How a module begins that a program writes from something else, which is what people read."""
# Lines of code that a package may have. Another mechanism needs one less, or a decision here.
BUDGETS = {
    "doctor": 5_600, "hub": 5_890, "child": 460, "spark": 4_500, "kernel": 3_112, "backup": 3_400,
    "courier": 4_300, "export": 2_800, "broker": 3_100, "sdk": 2_800, "outbox": 2_900,
    "web": 2_740, "workspace, recovery, upgrade": 2_000, "busfile, bus": 3_600,
    "ui, ask, rates": 1_300, "jobs": 2_400, "network, relay": 3_800, "monitoring": 1_800,
    OTHER: 8_683, "tests": 53_000,
}  # fmt: skip
# Folders and files of the rows that are more than a package; checks and what connects them too.
PARTS = {
    "jobs": ("appliance/jobs/", "appliance/integrations/jobs_"),
    "network, relay": (
        "appliance/relay/", "appliance/sdk/network/", "appliance/mailbox/",
        "appliance/integrations/relay_",
    ),
    "monitoring": (
        "appliance/monitoring/", "appliance/notify/", "appliance/integrations/notify_",
        "appliance/maintenance/", "appliance/web/write_gate.py", "appliance/forecast/",
        "appliance/rates/cli.py", "appliance/audit/", "appliance/auditlog/", "ops/monitoring/",
    ),
}  # fmt: skip
NO_CODE = re.compile(r"\s*(#|$)")
LONG_STRING = re.compile(rb"[rbfuRBFU]*(\"{3}|'{3})")


def count(text: str) -> int:
    """Lines of code of a module. Raises SyntaxError."""
    lines = text.split("\n")
    counted = {number for number, line in enumerate(lines, 1) if NO_CODE.match(line) is None}
    passed_over: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant | ast.JoinedStr):
            # In a long string, blank lines and those like comments count too.
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
    """The row of a file, by its path from the root of the tree. Checks are the doctor's, also in
    the folder of a subsystem, except those of PARTS."""
    for row, prefixes in PARTS.items():
        if path.startswith(prefixes):
            return row
    parts = path.split("/")
    if parts[0] == "appliance" and any(part.startswith("checks") for part in parts):
        return "doctor"
    name = parts[1] if parts[0] == "appliance" and len(parts) > 2 else parts[0]
    return next((row for row in BUDGETS if name in row.split(", ")), OTHER)


def sizes(root: Path = ROOT) -> Counter[str]:
    """Lines of code of each row, of the files that git knows."""
    listed = subprocess.check_output(["git", "ls-files", "-z", "*.py"], cwd=root, text=True)
    counted: Counter[str] = Counter()
    for path in filter(None, listed.split("\0")):
        text = (root / path).read_text("utf-8")
        if not text.startswith(GENERATED):
            counted[package_of(path)] += count(text)
    return counted


def main() -> int:
    counted, above = sizes(), []
    print(f"{'package':30} {'lines':>7} {'budget':>7}")
    for name, budget in BUDGETS.items():
        print(f"{name:30} {counted[name]:7,} {budget:7,}")
        if counted[name] > budget:
            above.append(name)
    product, budget = counted.total() - counted["tests"], sum(BUDGETS.values()) - BUDGETS["tests"]
    print(f"{'product':30} {product:7,} {budget:7,}")
    for name in above:
        print(f"ops/size: {name} is above its budget: remove code, or decide about ops/size.py")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
