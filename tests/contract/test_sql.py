"""SQL is put together from constants; what users say is always a parameter."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.contract.test_walls import ROOT, parsed

FOLDERS = ("appliance", "doctor")
SQL = re.compile(
    r"\b(SELECT\b.*\bFROM|INSERT INTO|UPDATE \w+ SET|DELETE FROM|PRAGMA|DROP|CREATE|WHERE|ORDER BY)\b"  # noqa: E501
    r"|^ ?(AND|OR|FROM|VALUES|GROUP BY)\b",
    re.DOTALL,
)
# Words for parts of a statement. What bears such a name is made of constants and question
# marks where it stands: look at it before using one, and twice before adding one.
PARTS = frozenset(
    {"beyond", "bounds", "clause", "column", "columns", "condition", "conditions", "direction",
     "end", "index", "limits", "lists", "made", "marks", "maybe", "newest", "numbers", "order",
     "over", "ended", "pragma", "prefix", "problems_max", "query", "seeks", "selection", "source",
     "table", "trigger", "where"}
)  # fmt: skip
TOOLS = frozenset({"len", "self", "shlex", "str", "database"})  # the latter two: a hint's text


def pieces(file: Path) -> Iterator[tuple[str, int]]:
    """What is put into the SQL texts of a file: as it is written, and where."""
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                part.value if isinstance(part, ast.Constant) else "x" for part in node.values
            )
            if SQL.search(text):
                for part in node.values:
                    if isinstance(part, ast.FormattedValue):
                        yield ast.unparse(part.value), node.lineno
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.Add):
            left = node.left
            if isinstance(left, ast.Constant) and SQL.search(str(left.value)):
                yield ast.unparse(node.right), node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            value = node.func.value
            known = isinstance(value, ast.Constant) and SQL.search(str(value.value))
            if node.func.attr == "format" and known:
                yield ast.unparse(node), node.lineno


def is_safe(text: str) -> bool:
    names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    constants = {name for name in names if re.fullmatch(r"_?[A-Z][A-Z0-9_]*", name)}
    module = re.fullmatch(r"\w+\.[A-Z][A-Z0-9_]*", text) is not None
    return module or names <= constants | PARTS | TOOLS


def test_sql_is_put_together_from_constants_only():
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
    results = [(file, *piece) for file in files for piece in pieces(file)]
    assert len(results) > 30
    unsafe = [
        f"{file.relative_to(ROOT)} line {line}: {text}"
        for file, text, line in results
        if not is_safe(text)
    ]
    assert unsafe == []


def test_connections_without_thread_check_have_one_user_at_a_time():
    """SQLite has no locks around calls in the server (`syscalls.omit_sqlite_locks`)."""
    unchecked = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "appliance").rglob("*.py")
        if "check_same_thread" in path.read_text()
    }
    assert unchecked == {
        "appliance/kernel/store_files.py",  # passes on what the next one says
        "appliance/checks/context.py",  # a context is used by one thread until it is closed
        "appliance/sdk/network/state.py",  # each transaction holds a lock
    }
