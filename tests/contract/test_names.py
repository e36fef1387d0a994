"""A test's name says subject, condition and result: `test_claim_expires_after_lease`."""

import ast
from collections.abc import Iterator

import pytest

from tests.contract.test_walls import ROOT, parsed, tracked

WORDS_MIN = 3
WORDS_MAX = 12
NOT_SUBJECTS = {"it", "its", "none", "that", "those", "what", "who", "whoever"}


def names_of_tests() -> Iterator[tuple[str, str]]:
    """Yield file and name of each test function."""
    for file in tracked("tests/*.py"):
        for node in ast.walk(parsed(file)) if file.name.startswith("test_") else ():
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if is_function and node.name.startswith("test_"):
                yield file.relative_to(ROOT).as_posix(), node.name


def problem(name: str) -> str | None:
    """Return why a name doesn't say subject, condition and result; None if nothing is wrong."""
    words = name.split("_")[1:]
    if words[0] in NOT_SUBJECTS:
        return f"begins with {words[0]!r} instead of the subject"
    if not WORDS_MIN <= len(words) <= WORDS_MAX:
        return f"has {len(words)} words, not {WORDS_MIN} to {WORDS_MAX}"
    return None


def test_every_test_name_says_subject_and_result():
    assert [
        f"{file}::{name}: {reason}" for file, name in names_of_tests() if (reason := problem(name))
    ] == []


@pytest.mark.parametrize(
    "name", ["test_origin", "test_link_expires", "test_it_opens_again", "test_what_is_refused"]
)
def test_bad_test_name_is_refused(name):
    assert problem(name) is not None


def test_name_above_word_limit_is_refused():
    assert problem("test_" + "_".join("a" * WORDS_MAX)) is None
    assert problem("test_" + "_".join("a" * (WORDS_MAX + 1))) is not None
