"""Keeps recently acked envelopes' ids, to recognize duplicates. Limited in number and time. Pure.

Envelopes that are still in the stream have no id here.
"""

from collections import deque
from collections.abc import Iterable

COUNT_MAX = 10_000  # ids in one stream
SECONDS_MAX = 600.0  # a producer has given up its retries by then


class RecentIds:
    __slots__ = ("_ids", "_max", "_order", "_seconds", "_totals", "total")

    def __init__(self, limit: int, seconds: float) -> None:
        self._max = limit
        self._seconds = seconds
        self._ids: set[str] = set()
        self._order: deque[str] = deque()
        self._totals: deque[tuple[float, int]] = deque()  # (instant, ids added until then)
        self.total = 0  # ids that were ever added

    def __contains__(self, id_: str) -> bool:
        return id_ in self._ids

    def __len__(self) -> int:
        return len(self._ids)

    def restore(self, ids: Iterable[str], total: int) -> None:
        """Add ids from the journal, oldest first, and set `total`."""
        for id_ in ids:
            self.add(id_)
        self.total = total

    def add(self, id_: str) -> None:
        if id_ in self._ids:
            return
        self._ids.add(id_)
        self._order.append(id_)
        self.total += 1
        if len(self._order) > self._max:
            self._ids.discard(self._order.popleft())

    def prune(self, now_ms: float) -> int:
        """Prune ids that were added too long ago. Returns how many. Call it regularly."""
        totals = self._totals
        if self.total != (totals[-1][1] if totals else 0):  # nothing to store for an idle stream
            totals.append((now_ms, self.total))
        past = 0
        while totals and totals[0][0] <= now_ms - self._seconds * 1000:
            past = totals.popleft()[1]
        pruned = 0
        while past and self.total - len(self._order) < past:
            self._ids.discard(self._order.popleft())
            pruned += 1
        return pruned
