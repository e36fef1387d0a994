"""Limits of length: a function ends by 70 lines, a file by 500."""

import ast
import subprocess
from pathlib import Path

from tests.contract.prose_texts import statements

ROOT = Path(__file__).parents[2]
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500


def tracked(*patterns: str) -> list[Path]:
    """Files of the repository, also those not committed yet, but none that git ignores."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    names = subprocess.check_output(command, cwd=ROOT, text=True).splitlines()
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def written_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the last statement, the docstring not counted."""
    lines = (node.end_lineno or 0) - node.lineno + 1
    if ast.get_docstring(node) is not None:
        lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
    return lines


def test_no_file_is_longer_than_the_limit():
    files = tracked("*.py", "*.sql", "ops/*", "*.js", "*.css")
    files.remove(ROOT / "ops" / "agentlip.toml")  # written by ops/write_settings.py
    files.remove(ROOT / "ops" / "monitoring" / "slo.toml")  # a table with a row for each alert
    files = [file for file in files if not file.read_bytes().startswith(b"# Written by `just")]
    files = [file for file in files if "vendor" not in file.parts]
    assert files
    long = {
        str(file.relative_to(ROOT)): count
        for file in files
        if (count := len(file.read_text(encoding="utf-8").splitlines())) > FILE_LINES_MAX
    }
    assert long == {}


def test_no_function_is_longer_than_the_limit():
    long = {}
    for file in tracked("*.py"):
        for node in statements(parsed(file)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count = written_lines(node)
                if count > FUNCTION_LINES_MAX:
                    long[f"{file.relative_to(ROOT)}: {node.name}"] = count
    assert long == {}


def test_every_module_says_what_it_is_for():
    silent = [
        str(file.relative_to(ROOT))
        for file in tracked("appliance/*.py", "doctor/*.py", "tests/*.py")
        if not file.read_text(encoding="utf-8").startswith('"""')
    ]
    assert silent == []
