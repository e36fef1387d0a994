"""Views: tables that are kept up to date beside the streams. Pure.

A watcher gets every change after the version of its snapshot. For each row at most one change
is pending: a newer one replaces it. So a slow watcher can miss intermediate states, but never the
latest one, and needs no more memory than the view.
"""

from collections.abc import Callable
from typing import Any

LATEST = "latestPerAgent"
PREFIX, SUFFIX = "agents/", "/inbox"


def is_inbox(stream: str) -> bool:
    """Return whether the address has the form agents/<name>/inbox."""
    name = stream[len(PREFIX) : -len(SUFFIX)]
    return (
        stream.startswith(PREFIX)
        and stream.endswith(SUFFIX)
        and len(stream) > len(PREFIX) + len(SUFFIX)
        and "/" not in name
    )


class Watcher:
    """One live view. `pending` maps keys to (version, change, row), oldest first."""

    __slots__ = ("credit", "pending", "wake", "wants")

    def __init__(
        self, wake: Callable[[], None], wants: Callable[[str], bool], credit: int | None = None
    ) -> None:
        self.wake = wake
        self.wants = wants
        self.credit = credit
        self.pending: dict[str, tuple[int, str, Any]] = {}

    def add_change(self, key: str, version: int, change: str, row: Any) -> None:
        before = self.pending.pop(key, None)
        if before is not None and before[1] == "add":
            if change == "remove":
                return  # the watcher never got that row
            change = "add"
        self.pending[key] = (version, change, row)
        self.wake()

    def pop(self, limit: int) -> list[tuple[str, int, str, Any]]:
        """Return the next changes, at most `limit`, and at most the credit if it uses credit."""
        if self.credit is not None:
            limit = min(limit, self.credit)
        keys = list(self.pending)[:limit]
        if self.credit is not None:
            self.credit -= len(keys)
        return [(key, *self.pending.pop(key)) for key in keys]


class View:
    """Rows by key, those unchanged for longest first. `version` (`watermark` on the wire) grows
    with every change. Beyond `rows_max` rows or `bytes_max` bytes, the first rows are evicted."""

    def __init__(self, name: str, rows_max: int, bytes_max: int) -> None:
        self.name = name
        self.rows: dict[str, Any] = {}
        self.bytes = 0  # of envelopes
        self.version = 0
        self.watchers: set[Watcher] = set()
        self._rows_max = rows_max
        self._bytes_max = bytes_max

    def put(self, key: str, row: Any) -> list[str]:
        """Set a row. Return the evicted rows' keys."""
        before = self.rows.pop(key, None)
        change = "add" if before is None else "update"
        self.rows[key] = row
        self.bytes += _size(row) - _size(before)
        self.version += 1
        for watcher in self.watchers:
            if watcher.wants(key):
                watcher.add_change(key, self.version, change, row)
        evicted: list[str] = []
        while len(self.rows) > self._rows_max or (
            self.bytes > self._bytes_max and len(self.rows) > 1
        ):
            evicted.append(next(iter(self.rows)))
            self.remove(evicted[-1])
        return evicted

    def remove(self, key: str) -> None:
        row = self.rows.pop(key, None)
        if row is None:
            return
        self.bytes -= _size(row)
        self.version += 1
        for watcher in self.watchers:
            if watcher.wants(key):
                watcher.add_change(key, self.version, "remove", row)

    def snapshot(self, wants: Callable[[str], bool], limit: int) -> list[tuple[str, Any]]:
        rows = [(key, row) for key, row in self.rows.items() if wants(key)]
        return rows[:limit]

    def watch(self, watcher: Watcher) -> int:
        """Start watching. Return the version for a snapshot that is taken now."""
        self.watchers.add(watcher)
        return self.version

    def unwatch(self, watcher: Watcher) -> None:
        self.watchers.discard(watcher)


def _size(row: Any) -> int:
    return len(row) if isinstance(row, bytes) else 0
