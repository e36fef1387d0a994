"""Which paths a glob has, and which globs overlap."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.busfile import globs
from appliance.kernel.errors import Invalid


@pytest.mark.parametrize(
    ("glob", "inside", "outside"),
    [
        ("src", "src src/a src/a/b", "srcs other"),
        ("src/", "src/a", "srcs"),
        ("src/*", "src/a src/a/b", "src a"),
        ("src/*.py", "src/a.py src/.py", "src/a.c src/b/a.py"),
        ("src/**", "src/a src/a/b", "src source/a"),
        ("**/a.py", "a.py x/a.py x/y/a.py", "b.py"),
        ("src/**/a.py", "src/a.py src/x/y/a.py", "a.py src/xa.c"),
        ("a?c", "abc a?c", "ac a/c"),
    ],
)
def test_glob_has_these_paths(glob, inside, outside):
    assert {path: globs.matches(glob, path) for path in inside.split()} == dict.fromkeys(
        inside.split(), True
    )
    assert {path: globs.matches(glob, path) for path in outside.split()} == dict.fromkeys(
        outside.split(), False
    )


@pytest.mark.parametrize(
    ("left", "right", "common"),
    [
        ("src/**", "src/api/*.py", True),
        ("src/*.py", "src/a*", True),
        ("src/*.py", "src/*.c", False),
        ("src", "src/deep/er.py", True),
        ("src/a", "src/b", False),
        ("*/a", "b/*", True),
        ("a?", "?b", True),
        ("a*b*c*d", "**", True),
    ],
)
def test_overlap_is_symmetric(left, right, common):
    assert globs.overlap(left, right) is globs.overlap(right, left) is common


@given(st.text("ab*?", min_size=1, max_size=6).filter(lambda glob: "**" not in glob),
       st.text("ab", min_size=1, max_size=6))  # fmt: skip
def test_names_match_as_in_the_standard_library(glob, name):
    assert globs.matches(glob, name) == fnmatchcase(name, glob)
    assert globs.overlap(glob, name) == fnmatchcase(name, glob)


@pytest.mark.parametrize("glob", ["", "/etc", "a/../b", "./a", "a" * 201])
def test_glob_outside_of_the_workspace_is_refused(glob):
    with pytest.raises(Invalid):
        globs.check_glob(glob)
