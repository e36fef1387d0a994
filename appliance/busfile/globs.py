"""Matches path globs in claims: which paths a glob has, and whether two have a path in common.
Pure.

As in a .gitignore at the workspace's top: `*` and `?` stand for characters in one name, `**` as a
whole name for any number of folders. A glob also stands for everything below its matches. All other
characters stand for themselves, also brackets.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from appliance.kernel.errors import Invalid

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

GLOB_LENGTH_MAX = 200


def matches(glob: str, path: str) -> bool:
    """Return whether the glob has the path, which is relative to the workspace."""
    return _spec(glob).match_file(path)


def overlap(left: str, right: str) -> bool:
    """Return whether some path could be in both globs.

    Exact, except that a last name with a dot, such as `*.py`, counts as a file: what would be below
    counts only for a glob that begins with the same text. Other last names count as folders.
    """
    if is_below(left, right) or is_below(right, left):
        return True
    return any(_meet(a, b, "**", _names_meet) for a in _forms(left) for b in _forms(right))


def is_below(glob: str, other: str) -> bool:
    """Return whether the text `other` begins with `glob`, as a folder."""
    return other.rstrip("/").startswith(glob.rstrip("/") + "/")


def check_glob(glob: str) -> str:
    """Raise Invalid for a glob that names nothing in a workspace."""
    parts = glob.split("/")
    if not 0 < len(glob) <= GLOB_LENGTH_MAX or not parts[0] or {".", ".."} & set(parts):
        raise Invalid(
            f"{glob!r} is not a path in the workspace",
            hint=f"up to {GLOB_LENGTH_MAX} characters, relative, without '.' and '..': src/api/**",
        )
    return glob


@cache
def _spec(glob: str) -> "GitIgnoreSpec":
    from pathspec import GitIgnoreSpec  # takes 15 ms, and most commands match nothing

    escaped = re.sub(r"([\\\[\]!# ])", r"\\\1", glob)
    return GitIgnoreSpec.from_lines([f"/{escaped}"])


def _forms(glob: str) -> list[tuple[str, ...]]:
    """Return the glob as names, and with everything below unless that is a file."""
    names = tuple(name for name in glob.split("/") if name)
    if names[-1] == "**":
        return [(*names[:-1], "*", "**")] if len(names) > 1 else [names]
    is_file = "." in names[-1][1:] and not glob.endswith("/")
    below = (*names, "*", "**")
    return [names] if is_file else [below] if glob.endswith("/") else [names, below]


@cache
def _names_meet(left: str, right: str) -> bool:
    return _meet(left.replace("**", "*"), right.replace("**", "*"), "*", _characters_meet)


def _characters_meet(left: str, right: str) -> bool:
    return left == right or "?" in (left, right)


def _meet(
    left: Sequence[str], right: Sequence[str], many: str, meets: Callable[[str, str], bool]
) -> bool:
    """Return whether both match a common sequence; `many` stands for any number of items,
    `meets` decides about two others. Goes through pairs of positions, each once."""
    pending, seen = [(0, 0)], {(0, 0)}
    while pending:
        i, j = pending.pop()
        if i == len(left) and j == len(right):
            return True
        a = left[i] if i < len(left) else None
        b = right[j] if j < len(right) else None
        steps = [(i + 1, j)] if a == many else []
        steps += [(i, j + 1)] if b == many else []
        if a is not None and b is not None and (many in (a, b) or meets(a, b)):
            steps.append((i if a == many else i + 1, j if b == many else j + 1))
        for pair in steps:
            if pair not in seen:
                seen.add(pair)
                pending.append(pair)
    return False
