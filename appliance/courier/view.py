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
    """Rows by key, and who watches. `watermark` rises with every change."""

    def __init__(self, name: str, rows_max: int) -> None:
        self.name = name
        self.rows: dict[str, Any] = {}
        self.watermark = 0
        self.watchers: set[Watcher] = set()
        self._rows_max = rows_max

    def put(self, key: str, row: Any) -> str | None:
        """The row of this key is `row` now; the key that had to give way to it, if any."""
        change = "update" if key in self.rows else "add"
        self.rows[key] = row
        self.watermark += 1
        for watcher in self.watchers:
            if watcher.wants(key):
                watcher.tell(key, self.watermark, change, row)
        if len(self.rows) <= self._rows_max:
            return None
        oldest = next(iter(self.rows))
        self.remove(oldest)
        return oldest

    def remove(self, key: str) -> None:
        row = self.rows.pop(key, None)
        if row is None:
            return
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
