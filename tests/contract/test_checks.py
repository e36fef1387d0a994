"""The rows of the doctor's table are well-formed, and their pages explain all of them."""

import re

import pytest

from appliance.checks.check import COMMON_PROBLEMS, Check, Cost
from doctor.all_checks import CHECKS
from doctor.causes import CAUSES
from tests.contract.test_walls import ROOT

NAME = re.compile(r"[a-z]+(-[a-z]+)*\.[a-z]+(-[a-z]+)*")
PROBLEM = re.compile(r"[a-z]+(-[a-z]+)*")
ANY = "*"
PAGES = ROOT / "docs" / "reference" / "checks"
IDS = [check.name for check in CHECKS]


def test_names_are_unique_and_have_the_shape_group_and_noun():
    assert len(set(IDS)) == len(IDS)
    assert [name for name in IDS if not NAME.fullmatch(name)] == []


def test_causes_name_problems_that_their_checks_declare():
    declared = {check.name: {problem.name for problem in check.problems} for check in CHECKS}
    named = [cause.name.split(":") for cause in CAUSES]
    wrong = [
        f"{name}:{problem}"
        for name, problem in named
        if name in declared and problem not in {ANY, *declared[name]}
    ]
    assert wrong == []


@pytest.mark.parametrize("check", CHECKS, ids=IDS)
def test_check_says_what_it_inspects_and_finds(check: Check):
    assert check.inspects
    assert check.problems
    names = [*(problem.name for problem in check.problems), *COMMON_PROBLEMS]
    assert len(set(names)) == len(names)
    assert [name for name in names if not PROBLEM.fullmatch(name)] == []


def test_pages_explain_every_check_and_finding_and_no_other():
    written = "\n".join(page.read_text("utf-8") for page in sorted(PAGES.glob("*.md")))
    sections = re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", written, re.M | re.S)
    explained = {
        name: re.findall(r"^\| `([a-z-]+)` \| [^|]+\. \| [^|]+\. \|$", text, re.M)
        for name, text in sections
    }
    assert explained == {
        check.name: [problem.name for problem in check.problems] for check in CHECKS
    }


def test_index_explains_the_findings_of_every_check():
    written = (PAGES.parent / "checks.md").read_text("utf-8")
    assert re.findall(r"(?m)^\| `([a-z-]+)` \|", written) == list(COMMON_PROBLEMS)


INCLUDING = [check for check in CHECKS if check.includes is not None]


@pytest.mark.parametrize("check", INCLUDING, ids=[check.name for check in INCLUDING])
def test_check_that_includes_another_can_have_its_findings(check: Check):
    (included,) = [other for other in CHECKS if other.name == check.includes]
    assert (check.cost, included.cost) == (Cost.EXPENSIVE, Cost.CHEAP)
    assert not included.ready
    names = {problem.name for problem in check.problems}
    assert {problem.name for problem in included.problems} <= names


def test_readiness_checks_are_cheap():
    assert [check.name for check in CHECKS if check.ready and check.cost is not Cost.CHEAP] == []
