"""`docs/reference/conformance/`: each clause has a state, and a test or a page that exists."""

import re

import pytest

from tests.contract.test_threats import ROOT, functions

PAGES = sorted((ROOT / "docs/reference/conformance").glob("*.md"))
ROW = re.compile(
    r"(?m)^\| (\w[\w.]*) \| [^|]+ \| (met|met otherwise: [^|]+|not met: [^|]+) \| ([^|]*) ?\|$"
)
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(test_\w+|Test\w+))?`")
LINK = re.compile(r"\[[^\]]*\]\(([^)]+)\)")


def test_every_specification_has_a_page():
    assert [page.stem for page in PAGES] == ["bus", "courier", "hub", "network", "outbox"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_clause_has_a_state_and_names_what_holds_it(page):
    text = page.read_text("utf-8")
    rows = ROW.findall(text)
    assert len(rows) == len(re.findall(r"(?m)^\| (?!Id |---)", text)) >= 40, "a broken row"
    ids = [row[0] for row in rows]
    assert sorted(ids) == sorted(set(ids))
    for key, state, how in rows:
        tests, links = TEST.findall(how), LINK.findall(how)
        assert tests or links or state.startswith("not met"), f"{key}: nothing holds this"
        assert [test for test in tests if test[1] not in functions(test[0])] == []
        assert all((page.parent / link.partition("#")[0]).is_file() for link in links), key
        assert re.sub(r"[;,\s]", "", LINK.sub("", TEST.sub("", how))) == "", key
