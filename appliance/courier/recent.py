"""The window of ids that were acked lately, bounded in number and in time. Pure.

An id that is still in the stream needs no window; the stream itself knows it.
"""

from collections import deque
from collections.abc import Iterable


class RecentIds:
    __slots__ = ("_ids", "_marks", "_max", "_order", "_seconds", "_total")

    def __init__(self, most: int, seconds: float) -> None:
        self._max = most
        self._seconds = seconds
        self._ids: set[str] = set()
        self._order: deque[str] = deque()
        self._marks: deque[tuple[float, int]] = deque()  # (instant, ids added until then)
        self._total = 0

    def __contains__(self, id_: str) -> bool:
        return id_ in self._ids

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def total(self) -> int:
        """How many there ever were: the place of the next."""
        return self._total

    def restore(self, ids: Iterable[str], total: int) -> None:
        """Take up what was remembered elsewhere, oldest first, of so many there ever were."""
        for id_ in ids:
            self.add(id_)
        self._total = total

    def add(self, id_: str) -> None:
        if id_ in self._ids:
            return
        self._ids.add(id_)
        self._order.append(id_)
        self._total += 1
        if len(self._order) > self._max:
            self._ids.discard(self._order.popleft())

    def age(self, now_ms: float) -> int:
        """Forget what was added longer ago than the window; call it now and then."""
        marks = self._marks
        if self._total != (marks[-1][1] if marks else 0):  # else an idle stream collects marks
            marks.append((now_ms, self._total))
        past = 0
        while marks and marks[0][0] <= now_ms - self._seconds * 1000:
            past = marks.popleft()[1]
        forgotten = 0
        while past and self._total - len(self._order) < past:
            self._ids.discard(self._order.popleft())
            forgotten += 1
        return forgotten
