"""Times envelopes: ends of leases, delays and times to live. Pure.

Leases with one length end in their starting order, and are kept in a dictionary in insertion order,
their bucket: a start or end costs one dictionary operation. All other timers (delays, times to
live, extended leases) are in a heap. Cancelled timers stay there until half of the heap is stale,
which is then rebuilt.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Protocol

LEASE_BUCKETS_MAX = 64  # lease lengths with a bucket; all other leases use the heap
STALE_MAX = 1024
SLEEP_MS_MAX = 1000.0  # longest sleep; a shorter lease with a new bucket ends the sleep


class Timer(Protocol):
    """Something with a deadline. `timer_id` is its current entry in the heap, 0 without one."""

    timer_id: int
    deadline: float


class Timers:
    """The timers. All times are milliseconds on a monotonic clock.

    sleeping_until  `due` is not called before then, unless a timer wakes the caller; 0: awake
    """

    __slots__ = ("_heap", "_last_id", "_lease_buckets", "_on_wake", "_stale", "sleeping_until")

    def __init__(self) -> None:
        self.sleeping_until = 0.0
        self._on_wake: Callable[[], None] = _no_wake
        self._lease_buckets: dict[int, dict[Timer, None]] = {}
        self._heap: list[tuple[float, int, Timer]] = []
        self._last_id = 0
        self._stale = 0

    def __len__(self) -> int:
        return len(self._heap) + sum(len(bucket) for bucket in self._lease_buckets.values())

    def lease_bucket(self, lease_ms: int) -> dict[Timer, None] | None:
        """Return the bucket for leases with this length; None if there are too many lengths."""
        bucket = self._lease_buckets.get(lease_ms)
        if bucket is None:
            if len(self._lease_buckets) >= LEASE_BUCKETS_MAX:
                used = (pair for pair in self._lease_buckets.items() if pair[1])
                self._lease_buckets = dict(used)
                if len(self._lease_buckets) >= LEASE_BUCKETS_MAX:
                    return None
            bucket = self._lease_buckets[lease_ms] = {}
        if lease_ms < SLEEP_MS_MAX:
            self.wake()  # the next lease can end before the sleep does
        return bucket

    def set(self, timer: Timer, at_ms: float) -> None:
        """Let `timer` be due at `at_ms`, and no longer at another time."""
        self.cancel(timer)
        self._last_id += 1
        timer.timer_id = self._last_id
        timer.deadline = at_ms
        heappush(self._heap, (at_ms, self._last_id, timer))
        if at_ms < self.sleeping_until:
            self.wake()

    def cancel(self, timer: Timer) -> None:
        """Remove the timer from the heap, if it is there."""
        if timer.timer_id:
            timer.timer_id = 0
            self._stale += 1
            if self._stale > STALE_MAX and self._stale * 2 > len(self._heap):
                self._heap = [entry for entry in self._heap if entry[2].timer_id == entry[1]]
                heapify(self._heap)
                self._stale = 0

    def take_due(self, now_ms: float, limit: int) -> list[Timer]:
        """Remove and return timers that are due, oldest first, at most `limit`."""
        due_timers: list[Timer] = []
        heap = self._heap
        while heap and heap[0][0] <= now_ms and len(due_timers) < limit:
            _, timer_id, timer = heappop(heap)
            if timer.timer_id == timer_id:
                timer.timer_id = 0
                due_timers.append(timer)
            else:
                self._stale -= 1
        for bucket in self._lease_buckets.values():
            while bucket and len(due_timers) < limit:
                timer = next(iter(bucket))
                if timer.deadline > now_ms:
                    break
                del bucket[timer]
                due_timers.append(timer)
        return due_timers

    def next_due(self) -> float | None:
        """Return a time before which nothing is due."""
        deadlines = [
            next(iter(bucket)).deadline for bucket in self._lease_buckets.values() if bucket
        ]
        if self._heap:
            deadlines.append(self._heap[0][0])
        return min(deadlines, default=None)

    def sleep_until(self, until_ms: float, wake: Callable[[], None]) -> None:
        """Suspend `due` until `until_ms`. `wake` is called once if that is too late."""
        self.sleeping_until = until_ms
        self._on_wake = wake

    def wake(self) -> None:
        """Wake the `sleep_until` caller, if it sleeps."""
        if self.sleeping_until:
            self.sleeping_until = 0.0
            self._on_wake()


def _no_wake() -> None:
    """Do nothing: nothing sleeps."""
