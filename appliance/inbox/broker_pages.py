"""Turns pages of a broker's lists into own pages, limited in rows and in bytes. Pure."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from appliance.inbox import wire
from appliance.kernel.page import text_bytes

T = TypeVar("T")

FetchPage = Callable[[str, int], tuple[list[T], str]]
"""(after, limit) -> a page of the broker's list and the cursor after it; "" at the end."""

PAGE_OVERHEAD_BYTES = 500  # size of a page without its rows: the mesh, the cursor
TOPIC_OVERHEAD_BYTES = 100  # size of a topic without its name
_encode = msgspec.json.Encoder().encode


def collect(
    fetch: FetchPage[T], after: str, limit: int, bytes_max: int, size: Callable[[T], int]
) -> tuple[list[T], str]:
    """As many whole pages of the broker as fit into one own page, and the cursor after them.

    The cursor is the broker's and only valid after a whole page, so pages are not split: if the
    first page is too large, one with fewer rows is requested. A broker that ignores the limit sends
    all rows, which the size limit of its reply bounds.
    """
    rows: list[T] = []
    left = bytes_max
    while True:
        page, following = fetch(after, limit - len(rows))
        fitting = _fitting(page, left, size)
        if fitting < len(page):
            return (rows, after) if rows else fetch(after, max(1, fitting))
        rows += page
        left -= sum(map(size, page))
        if not page or following in ("", after):  # otherwise this would not end
            return rows, ""
        if len(rows) >= limit:
            return rows, following
        after = following


def _fitting(rows: Sequence[T], bytes_max: int, size: Callable[[T], int]) -> int:
    for index, row in enumerate(rows):
        bytes_max -= size(row)
        if bytes_max < 0:
            return index
    return len(rows)


def peer_bytes(peer: wire.Peer) -> int:
    return len(_encode(peer)) + 1


def topic_bytes(topic: tuple[str, bool]) -> int:
    return TOPIC_OVERHEAD_BYTES + text_bytes(topic[0])


def merge_topics(
    own: Sequence[str], remote: Sequence[tuple[str, bool]], after: str, more: bool
) -> list[tuple[str, bool]]:
    """Topics in the order of names, after `after`: the broker's, and own subscriptions that it did
    not list. `more`: the broker has further topics after these."""
    by_name = dict.fromkeys(own, True) | dict(remote)
    last = max((name for name, _ in remote), default="") if more else None
    return sorted(
        (name, subscribed)
        for name, subscribed in by_name.items()
        if name > after and (last is None or name <= last)
    )
