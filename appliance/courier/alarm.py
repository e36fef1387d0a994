"""Everything that happens to an envelope because time passed, in one place. Pure.

Leases of the usual length end in the order they began, so a dictionary in insertion
order is their clock: starting and ending one costs no more than a dictionary entry.
Other instants (delays, expiries, extended leases) wait in a heap; cancelled ones stay
there until half of the heap is stale, then it is rebuilt.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Protocol

LINES_MAX = 64  # lengths of leases that get a line of their own; further ones use the heap
STALE_MAX = 1024
REST_MS_MAX = 1000.0  # longest rest; no line of leases this long can end within one


class Timed(Protocol):
    """What can be waited for. `stamp` is the number of the one alarm that still counts."""

    stamp: int
    deadline: float


class Alarm:
    """Instants in milliseconds of a clock that never goes back.

    rest_until  nobody asks `due` before then, unless `rest`'s caller is woken; 0: not resting
    """

    __slots__ = ("_heap", "_lines", "_number", "_stale", "_wake", "rest_until")

    def __init__(self) -> None:
        self.rest_until = 0.0
        self._wake: Callable[[], None] = _nobody
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
        if length_ms < REST_MS_MAX:
            self.interrupt()  # a lease from now on may end before the rest does
        return line

    def set(self, timed: Timed, at_ms: float) -> None:
        """Have `timed` come due at `at_ms`, and at no other instant."""
        self.cancel(timed)
        self._number += 1
        timed.stamp = self._number
        timed.deadline = at_ms
        heappush(self._heap, (at_ms, self._number, timed))
        if at_ms < self.rest_until:
            self.interrupt()

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

    def rest(self, until_ms: float, wake: Callable[[], None]) -> None:
        """`due` is not asked before `until_ms`; `wake` is called once if that becomes too late."""
        self.rest_until = until_ms
        self._wake = wake

    def interrupt(self) -> None:
        """Something needs a tick before the rest is over."""
        if self.rest_until:
            self.rest_until = 0.0
            self._wake()


def _nobody() -> None:
    """Nobody rests."""
