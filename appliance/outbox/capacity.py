"""Computes the outbox's fill level, and whether it accepts sends. Pure."""

import math
from typing import Literal

Level = Literal["normal", "high", "full", "degraded"]

HIGH, FULL, DEGRADED = 0.80, 0.95, 1.0


def level_of(fill_ratio: float) -> Level:
    if fill_ratio >= DEGRADED:
        return "degraded"
    if fill_ratio >= FULL:
        return "full"
    return "high" if fill_ratio >= HIGH else "normal"


class Gauge:
    """Estimates the fill between two measurements: the last one, plus the sends accepted and ended
    since then."""

    def __init__(self, sends_max: int, bytes_max: int) -> None:
        self.set_limits(sends_max, bytes_max)
        self._open = 0
        self._bytes = 0

    def set_limits(self, sends_max: int, bytes_max: int) -> None:
        self._sends_max = sends_max
        self._bytes_max = bytes_max

    def set_usage(self, open_sends: int, bytes_used: int) -> None:
        self._open, self._bytes = open_sends, bytes_used

    def add(self, sends: int, size: int) -> None:
        self._open += sends
        self._bytes += size

    def remove(self, sends: int) -> None:
        self._open = max(0, self._open - sends)

    @property
    def fill_ratio(self) -> float:
        """Return how full the file or the queue is, whichever is fuller; 1.0 is the limit."""
        return max(self._bytes / self._bytes_max, self._open / self._sends_max)

    @property
    def level(self) -> Level:
        return level_of(self.fill_ratio)

    @property
    def free_sends(self) -> int:
        """Return how many more sends can be accepted."""
        if self.fill_ratio >= FULL:
            return 0
        return max(0, math.ceil(FULL * self._sends_max) - self._open)
