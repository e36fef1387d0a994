"""Everything that happens to an envelope because time passed, in one place. Pure.

Leases of the usual length end in the order they began, so a dictionary in insertion
order is their clock: starting and ending one costs no more than a dictionary entry.
Other instants (delays, expiries, extended leases) wait in a heap; cancelled ones stay
there until half of the heap is stale, then it is rebuilt.
"""

from heapq import heapify, heappop, heappush
from typing import Protocol

LINES_MAX = 64  # lengths of leases that get a line of their own; further ones use the heap
STALE_MAX = 1024


class Timed(Protocol):
    """What can be waited for. `stamp` is the number of the one alarm that still counts."""

    stamp: int
    deadline: float


class Alarm:
    """Instants in milliseconds of a clock that never goes back."""

    __slots__ = ("_heap", "_lines", "_number", "_stale")

    def __init__(self) -> None:
        self._lines: dict[int, dict[Timed, None]] = {}
        self._heap: list[tuple[float, int, Timed]] = []
        self._number = 0
        self._stale = 0

    def __len__(self) -> int:
        return len(self._heap) + sum(len(line) for line in self._lines.values())

    def line(self, length_ms: int) -> dict[Timed, None] | None:
        """Where leases of this length wait; None when there are too many lengths."""
        line = self._lines.get(length_ms)
        if line is None:
            if len(self._lines) >= LINES_MAX:
                self._lines = {length: kept for length, kept in self._lines.items() if kept}
                if len(self._lines) >= LINES_MAX:
                    return None
            line = self._lines[length_ms] = {}
        return line

    def set(self, timed: Timed, at_ms: float) -> None:
        """Have `timed` come due at `at_ms`, and at no other instant."""
        self.cancel(timed)
        self._number += 1
        timed.stamp = self._number
        timed.deadline = at_ms
        heappush(self._heap, (at_ms, self._number, timed))

    def cancel(self, timed: Timed) -> None:
        """Forget the instant in the heap, if there is one."""
        if timed.stamp:
            timed.stamp = 0
            self._stale += 1
            if self._stale > STALE_MAX and self._stale * 2 > len(self._heap):
                self._heap = [entry for entry in self._heap if entry[2].stamp == entry[1]]
                heapify(self._heap)
                self._stale = 0

    def due(self, now_ms: float, most: int) -> list[Timed]:
        """What has come due, oldest first, at most so many; each is told once."""
        found: list[Timed] = []
        heap = self._heap
        while heap and heap[0][0] <= now_ms and len(found) < most:
            _, number, timed = heappop(heap)
            if timed.stamp == number:
                timed.stamp = 0
                found.append(timed)
            else:
                self._stale -= 1
        for line in self._lines.values():
            while line and len(found) < most:
                timed = next(iter(line))
                if timed.deadline > now_ms:
                    break
                del line[timed]
                found.append(timed)
        return found

    def next_at(self) -> float | None:
        """A moment before which nothing comes due."""
        ends = [next(iter(line)).deadline for line in self._lines.values() if line]
        if self._heap:
            ends.append(self._heap[0][0])
        return min(ends, default=None)
