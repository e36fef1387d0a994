"""Fits a catch-up into a budget. Pure.

A text costs the bytes that its JSON form has in UTF-8. Every heading with its command is always
there. Then each part in turn, the most urgent first, gets its share, and afterwards what the others
left. Within a part, items are left out only from the end.
"""

import shlex
from collections.abc import Sequence

import msgspec

from appliance.hub.catchup import wire
from appliance.hub.catchup.wire import BYTES_PER_TOKEN, CatchUpItem, CatchUpPart, CatchUpText
from appliance.kernel.blank import printable

SHARES = {"questions": 0.3, "claims": 0.2, "entries": 0.2, "pins": 0.1, "topics": 0.2}
"""Parts in order of urgency, with the fraction of the budget that each may use first."""
NOTHING = "Nothing waits, and no topic changed.\n"
LINE_BYTES_MIN, LINE_BYTES_MAX = 80, 700  # an item has at most a tenth of the budget
NAME_BYTES_MAX = 100  # a longer name is not in commands
_encode = msgspec.json.Encoder().encode


def cost(text: str, following: int) -> int:
    """Return the bytes of the longest form of a catch-up's text, the tool's result."""
    return len(_encode(CatchUpText(text, following)))


def tokens_of(text: str, following: int) -> int:
    return -(-cost(text, following) // BYTES_PER_TOKEN)


def line_bytes(tokens: int) -> int:
    """Return how long an item may be with this budget."""
    return min(max(tokens * BYTES_PER_TOKEN // 10, LINE_BYTES_MIN), LINE_BYTES_MAX)


def excerpt(text: str, bytes_max: int) -> str:
    """Return the beginning of a text on one line, without characters that can't be printed."""
    short = printable(" ".join(text[: 2 * bytes_max].split()))
    raw = short.encode("utf-8", "replace")
    if len(raw) <= bytes_max and len(text) <= 2 * bytes_max:
        return raw.decode()
    return raw[: bytes_max - 3].decode("utf-8", "ignore") + "…"


def argument(name: str) -> str:
    """Return a name as a shell's argument with its flag; nothing for a name that is too long."""
    quoted = shlex.quote(name)
    return f" --as {quoted}" if len(_encode(quoted)) <= NAME_BYTES_MAX and name else ""


def fit(name: str, following: int, parts: Sequence[CatchUpPart], tokens: int) -> wire.CatchUp:
    """Return the catch-up with as many items as fit. `more` in `parts` counts what is behind the
    items."""
    budget = tokens * BYTES_PER_TOKEN
    empty = [_keep(part, 0) for part in parts]
    flag = argument(name)
    if cost(render(name, following, empty), following) > budget:
        name_shown, parts = "", [_without(part, flag) for part in parts]
        empty = [_keep(part, 0) for part in parts]
    else:
        name_shown = name
    left = budget - cost(render(name_shown, following, empty), following)
    kept = _share_out(parts, left)
    shown = [_keep(part, count) for part, count in zip(parts, kept, strict=True)]
    text = render(name_shown, following, shown)
    return wire.CatchUp(name, following, tokens_of(text, following), text, shown)


def _share_out(parts: Sequence[CatchUpPart], left: int) -> list[int]:
    """Return how many items each part may show."""
    kept, shares = [0] * len(parts), [int(left * SHARES[part.part]) for part in parts]
    for limits in (shares, None):
        for index, part in enumerate(parts):
            room = left if limits is None else min(limits[index], left)
            for item in part.items[kept[index] :]:
                size = len(_encode(_bullet(item))) - 2
                if size > room:
                    break
                room, left, kept[index] = room - size, left - size, kept[index] + 1
    return kept


def render(name: str, following: int, parts: Sequence[CatchUpPart]) -> str:
    """Return the Markdown text."""
    title = f"# Catch-up for {excerpt(name, NAME_BYTES_MAX)}" if name else "# Catch-up"
    pieces = [f"{title}, next {following}\n"]
    for part in parts:
        more = f"{part.more}+" if part.is_bound else str(part.more)
        if part.unavailable:
            pieces.append(f"## {part.part.title()}: {part.unavailable}\n")
        elif part.more or part.is_bound:
            pieces.append(f"## {part.part.title()}, {more} more: {part.command}\n")
        elif part.items:
            pieces.append(f"## {part.part.title()}\n")
        pieces += map(_bullet, part.items)
    return "".join(pieces) + (NOTHING if len(pieces) == 1 else "")


def _bullet(item: CatchUpItem) -> str:
    return f"- {item.line}\n"


def _keep(part: CatchUpPart, count: int) -> CatchUpPart:
    more = part.more + len(part.items) - count
    return msgspec.structs.replace(part, items=part.items[:count], more=more)


def _without(part: CatchUpPart, flag: str) -> CatchUpPart:
    return msgspec.structs.replace(part, command=part.command.removesuffix(flag))
