"""Lists that a broker keeps, as pages of ours: limited in rows and in bytes. Pure."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from appliance.inbox import wire
from appliance.kernel.page import text_bytes

T = TypeVar("T")

Ask = Callable[[str, int], tuple[list[T], str]]
"""(after, limit) -> a page of the broker's, and the cursor behind it; "" at the end."""

BESIDE_BYTES = 500  # of a page beside its rows: the mesh, the cursor
TOPIC_BYTES = 100  # of a topic beside its name
_encode = msgspec.json.Encoder().encode


def gather(
    ask: Ask[T], after: str, limit: int, bytes_max: int, size: Callable[[T], int]
) -> tuple[list[T], str]:
    """Whole pages of the broker's, as many as fit on one of ours, and the cursor behind them.

    A cursor is the broker's own and stands behind a whole page, so a page is not cut: where the
    first is too large, one with fewer rows is asked for. A broker that knows no limits gives
    all it has, which is limited by the bytes of its answer.
    """
    rows: list[T] = []
    left = bytes_max
    while True:
        found, following = ask(after, limit - len(rows))
        fitting = _fitting(found, left, size)
        if fitting < len(found):
            return (rows, after) if rows else ask(after, max(1, fitting))
        rows += found
        left -= sum(map(size, found))
        if not found or following in ("", after):  # or it would go on for ever
            return rows, ""
        if len(rows) >= limit:
            return rows, following
        after = following


def _fitting(rows: Sequence[T], bytes_max: int, size: Callable[[T], int]) -> int:
    for place, row in enumerate(rows):
        bytes_max -= size(row)
        if bytes_max < 0:
            return place
    return len(rows)


def peer_bytes(peer: wire.Peer) -> int:
    return len(_encode(peer)) + 1


def topic_bytes(topic: tuple[str, bool]) -> int:
    return TOPIC_BYTES + text_bytes(topic[0])


def merged(
    ours: Sequence[str], theirs: Sequence[tuple[str, bool]], after: str, more: bool
) -> list[tuple[str, bool]]:
    """Topics by name, behind `after`: those of the broker, and what was subscribed to from here
    that it does not name. `more`: the broker has others behind the last of these."""
    named = dict.fromkeys(ours, True) | dict(theirs)
    last = max((name for name, _ in theirs), default="") if more else None
    return sorted(
        (name, subscribed)
        for name, subscribed in named.items()
        if name > after and (last is None or name <= last)
    )
