"""Globs of paths in claims: which paths one has, and whether two have a path in common. Pure.

`*` and `?` stand for characters of one name, `**` for any number of folders. A path without them
also stands for everything below it.
"""

from functools import cache

from appliance.kernel.errors import Invalid

GLOB_LENGTH_MAX = 200
_ONE, _NAME, _ANY = "?", "*", "**"


def matches(glob: str, path: str) -> bool:
    """Whether the glob has the path, which is relative to the workspace."""
    return any(_meet(tokens, tuple(path)) for tokens in _forms(glob))


def overlap(left: str, right: str) -> bool:
    """Whether some path could be in both."""
    return any(_meet(a, b) for a in _forms(left) for b in _forms(right))


def check_glob(glob: str) -> str:
    """Raises Invalid for a glob that names nothing in a workspace."""
    parts = glob.split("/")
    if not 0 < len(glob) <= GLOB_LENGTH_MAX or not parts[0] or {".", ".."} & set(parts):
        raise Invalid(
            f"{glob!r} is not a path in the workspace",
            hint=f"up to {GLOB_LENGTH_MAX} characters, relative, without '.' and '..': src/api/**",
        )
    return glob


def _forms(glob: str) -> tuple[tuple[str, ...], ...]:
    """The glob as tokens, and with everything below it."""
    tokens = _tokens(glob.rstrip("/"))
    return (tokens, (*tokens, "/", _ANY))


@cache
def _tokens(glob: str) -> tuple[str, ...]:
    tokens: list[str] = []
    position = 0
    while position < len(glob):
        token = _ANY if glob.startswith(_ANY, position) else glob[position]
        position += len(token)
        if token == _ANY and glob.startswith("/", position):
            position += 1  # `**/x` also stands for `x`
        tokens.append(token)
    return tuple(tokens)


def _meet(left: tuple[str, ...], right: tuple[str, ...]) -> bool:
    """Whether a text is matched by both. Goes through pairs of positions, each once."""
    pending, seen = [(0, 0)], {(0, 0)}
    while pending:
        i, j = pending.pop()
        if i == len(left) and j == len(right):
            return True
        for pair in _steps(left, i, right, j):
            if pair not in seen:
                seen.add(pair)
                pending.append(pair)
    return False


def _steps(left: tuple[str, ...], i: int, right: tuple[str, ...], j: int) -> list[tuple[int, int]]:
    """The pairs of positions after one character that both match, or after an empty match."""
    a = left[i] if i < len(left) else ""
    b = right[j] if j < len(right) else ""
    steps = []
    if a in (_NAME, _ANY):
        steps.append((i + 1, j))
    if b in (_NAME, _ANY):
        steps.append((i, j + 1))
    if a and b and _share(a, b):
        after_a = i if a in (_NAME, _ANY) else i + 1
        after_b = j if b in (_NAME, _ANY) else j + 1
        steps.append((after_a, after_b))
    return steps


def _share(a: str, b: str) -> bool:
    """Whether a character exists that both tokens stand for."""
    if a == _ANY or b == _ANY:
        return True
    if a in (_ONE, _NAME):
        return b != "/"
    return a == b or (b in (_ONE, _NAME) and a != "/")
