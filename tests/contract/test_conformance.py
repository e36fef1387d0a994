"""`docs/reference/conformance.md`: every line leads to a test or a page that exists."""

import ast
import re
from functools import cache

import pytest

from tests.contract.test_walls import ROOT

PAGE = ROOT / "docs" / "reference" / "conformance.md"
ROW = re.compile(r"(?m)^\| (\w[\w.]*) \| ([^|]+) \| ([^|]+) \|$")
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`")
LINK = re.compile(r"\]\(([^)]+)\)")


def sections() -> dict[str, list[tuple[str, str, str]]]:
    """heading → (id, line, how it holds) of its table."""
    parts = re.split(r"(?m)^## (.+)$", PAGE.read_text(encoding="utf-8"))[1:]
    results = {}
    for heading, body in zip(parts[::2], parts[1::2], strict=True):
        rows = [row for row in ROW.findall(body) if row[0] != "Id"]
        assert rows, f"{heading} has no rows"
        assert len(rows) == len(re.findall(r"(?m)^\| ", body)) - 2, f"{heading}: a broken row"
        results[heading] = rows
    return results


def rows() -> list[tuple[str, str, str]]:
    return [row for results in sections().values() for row in results]


@cache
def names_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


def test_there_are_many_lines_and_each_has_its_own_id():
    ids = [row[0] for row in rows()]
    assert len(ids) > 150
    assert sorted(ids) == sorted(set(ids))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_every_reference_of_the_table_leads_to_a_test_or_a_page(row):
    _, line, how = row
    tests, links = TEST.findall(how), LINK.findall(how)
    assert tests or links, f"nothing holds: {line}"
    for path, name in tests:
        assert (ROOT / path).is_file(), path
        assert name, f"{path}: which test?"
        assert name in names_in(path), f"{path} has no {name}"
    for link in links:
        assert (PAGE.parent / link.partition("#")[0]).is_file(), link
    assert re.sub(r"[;,\s]", "", LINK.sub("", TEST.sub("", re.sub(r"\[[^\]]*", "", how)))) == ""
