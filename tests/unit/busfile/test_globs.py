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
        ("src", "src src/a src/a/b", "srcs other lib/src"),
        ("src/", "src/a src/a/b", "srcs lib/src/a"),
        ("src/*", "src/a src/a/b", "src a"),
        ("src/*.py", "src/a.py src/.py", "src/a.c src/b/a.py"),
        ("src/**", "src/a src/a/b", "src source/a"),
        ("**/a.py", "a.py x/a.py x/y/a.py", "b.py xa.py x/ya.py"),
        ("**/*.md", "a.md notes/a.md", "src/main.py notes/md"),
        ("**/Makefile", "Makefile src/Makefile", "src/GNUMakefile"),
        ("src/**/a.py", "src/a.py src/x/y/a.py", "a.py src/xa.c src/xa.py"),
        ("a?c", "abc a?c", "ac a/c"),
        ("a**c", "ac abbc", "ab/c"),
        ("app/[id]/page.tsx", "app/[id]/page.tsx", "app/i/page.tsx"),
        ("a\\*", "a\\b", "a*"),
    ],
)
def test_glob_has_these_paths(glob, inside, outside):
    matched = {path: globs.matches(glob, path) for path in f"{inside} {outside}".split()}
    assert [path for path, is_in in matched.items() if is_in] == inside.split()


@given(
    st.text("ab[]!#\\ .", min_size=1, max_size=6)
    .filter(str.strip)
    .filter(lambda path: path not in (".", ".."))
)
def test_path_without_wildcards_matches_itself_and_what_is_below(path):
    assert globs.matches(path, path)
    assert globs.matches(path, f"{path}/a")
    assert globs.overlap(path, path)


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
        ("**/*.md", "src/main.py", False),
        ("**/*.md", "src/*.py", False),
        ("**/*.md", "src", True),
        ("**/*.md", "src.d/", True),
        ("**/*.md", "README.md", True),
        ("**/api.py", "src/myapi.py", False),
        ("**/api.py", "src/**", True),
        ("my.app", "my.app/**", True),
        ("my.app", "my.app/main.py", True),
        ("docs/", "docs", True),
        ("docs/", "docs.md", False),
        ("a/**/z", "a/z", True),
        ("a/**/z", "b/**", False),
        ("app/[id]/x.ts", "app/i/x.ts", False),
    ],
)
def test_overlap_is_symmetric(left, right, common):
    assert globs.overlap(left, right) is globs.overlap(right, left) is common


NAMES = st.sampled_from(["a", "b", "ab", "*", "?", "a*", "*b", "**"])
PATHS = st.lists(st.sampled_from(["a", "b", "ab", "ba"]), min_size=1, max_size=4)


@given(st.lists(NAMES, min_size=1, max_size=4), st.lists(NAMES, min_size=1, max_size=4), PATHS)
def test_globs_with_a_path_in_common_overlap(left, right, path):
    left, right, path = ("/".join(names) for names in (left, right, path))
    if globs.matches(left, path) and globs.matches(right, path):
        assert globs.overlap(left, right)
    # A glob without wildcards is a path, so the two functions agree.
    assert globs.overlap(left, path + ".x") is (
        globs.matches(left, path + ".x") or globs.is_below(path + ".x", left)
    )


@given(st.text("ab*?", min_size=1, max_size=6).filter(lambda glob: "**" not in glob),
       st.text("ab", min_size=1, max_size=6))  # fmt: skip
def test_names_match_as_in_the_standard_library(glob, name):
    assert globs.matches(glob, name) == fnmatchcase(name, glob)
    assert globs.overlap(glob, name) == fnmatchcase(name, glob)


@pytest.mark.parametrize("glob", ["", "/etc", "a/../b", "./a", "a" * 201])
def test_glob_outside_of_the_workspace_is_refused(glob):
    with pytest.raises(Invalid):
        globs.check_glob(glob)
