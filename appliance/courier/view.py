"""Views: what is kept up to date beside the streams. Pure.

A watcher hears every change after the watermark of its snapshot, at most one waiting
change for each row: what it has not read yet is replaced by what is true now. So a slow
watcher misses steps in between, never the outcome, and holds no more than the view does.
"""

from collections.abc import Callable
from typing import Any

LATEST = "latestPerAgent"
INFLIGHT = "inflight"
VIEWS = (LATEST, INFLIGHT)
PREFIX, SUFFIX = "agents/", "/inbox"


def is_inbox(stream: str) -> bool:
    """`agentlip`-style addresses only: agents/<name>/inbox (the specification's words)."""
    name = stream[len(PREFIX) : -len(SUFFIX)]
    return (
        stream.startswith(PREFIX)
        and stream.endswith(SUFFIX)
        and len(stream) > len(PREFIX) + len(SUFFIX)
        and "/" not in name
    )


class Watcher:
    """One live view. `waiting` maps rows to (watermark, change, row), oldest first."""

    __slots__ = ("credit", "waiting", "wake", "wants")

    def __init__(
        self,
        wake: Callable[[], None],
        wants: Callable[[str], bool],
        credit: int | None = None,
    ) -> None:
        self.wake = wake
        self.wants = wants
        self.credit = credit
        self.waiting: dict[str, tuple[int, str, Any]] = {}

    def tell(self, key: str, watermark: int, change: str, row: Any) -> None:
        before = self.waiting.pop(key, None)
        if before is not None and before[1] == "add":
            if change == "remove":
                return  # it never heard of that row
            change = "add"
        self.waiting[key] = (watermark, change, row)
        self.wake()

    def take(self, most: int) -> list[tuple[str, int, str, Any]]:
        """What is to be told now, within its credit if it has any."""
        if self.credit is not None:
            most = min(most, self.credit)
        keys = list(self.waiting)[:most]
        if self.credit is not None:
            self.credit -= len(keys)
        return [(key, *self.waiting.pop(key)) for key in keys]


class View:
    """Rows by key, the longest unchanged first, and who watches. `watermark` rises with every
    change. More rows than `rows_max`, or envelopes of more than `bytes_max`: the first give way."""

    def __init__(self, name: str, rows_max: int, bytes_max: int) -> None:
        self.name = name
        self.rows: dict[str, Any] = {}
        self.bytes = 0  # of envelopes
        self.watermark = 0
        self.watchers: set[Watcher] = set()
        self._rows_max = rows_max
        self._bytes_max = bytes_max

    def put(self, key: str, row: Any) -> list[str]:
        """The row of this key is `row` now; the keys that had to give way to it."""
        before = self.rows.pop(key, None)
        change = "add" if before is None else "update"
        self.rows[key] = row
        self.bytes += _size(row) - _size(before)
        self.watermark += 1
        for watcher in self.watchers:
            if watcher.wants(key):
                watcher.tell(key, self.watermark, change, row)
        gone: list[str] = []
        while len(self.rows) > self._rows_max or (
            self.bytes > self._bytes_max and len(self.rows) > 1
        ):
            gone.append(next(iter(self.rows)))
            self.remove(gone[-1])
        return gone

    def remove(self, key: str) -> None:
        row = self.rows.pop(key, None)
        if row is None:
            return
        self.bytes -= _size(row)
        self.watermark += 1
        for watcher in self.watchers:
            if watcher.wants(key):
                watcher.tell(key, self.watermark, "remove", row)

    def snapshot(self, wants: Callable[[str], bool], most: int) -> list[tuple[str, Any]]:
        found = [(key, row) for key, row in self.rows.items() if wants(key)]
        return found[:most]

    def watch(self, watcher: Watcher) -> int:
        """From now on; the watermark of what a snapshot taken now shows."""
        self.watchers.add(watcher)
        return self.watermark

    def leave(self, watcher: Watcher) -> None:
        self.watchers.discard(watcher)


def _size(row: Any) -> int:
    return len(row) if isinstance(row, bytes) else 0
