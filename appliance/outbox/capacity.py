"""How full the outbox is, and what that means for sends. Pure."""

import math
from typing import Literal

Level = Literal["normal", "high", "full", "degraded"]

HIGH, FULL, DEGRADED = 0.80, 0.95, 1.0


def fill(bytes_used: int, bytes_max: int, open_sends: int, sends_max: int) -> float:
    """The fuller of file and queue; 1.0 is the limit."""
    return max(bytes_used / bytes_max, open_sends / sends_max)


def level(filled: float) -> Level:
    if filled >= DEGRADED:
        return "degraded"
    if filled >= FULL:
        return "full"
    return "high" if filled >= HIGH else "normal"


def accepts(at: Level) -> bool:
    """Whether new sends are taken."""
    return at in ("normal", "high")


class Gauge:
    """What is known of the fill between two looks at the file: the last look, and what was
    accepted and ended since."""

    def __init__(self, sends_max: int, bytes_max: int) -> None:
        self.limit(sends_max, bytes_max)
        self._open = 0
        self._bytes = 0

    def limit(self, sends_max: int, bytes_max: int) -> None:
        self._sends_max = sends_max
        self._bytes_max = bytes_max

    def looked(self, open_sends: int, bytes_used: int) -> None:
        self._open, self._bytes = open_sends, bytes_used

    def accepted(self, sends: int, size: int) -> None:
        self._open += sends
        self._bytes += size

    def ended(self, sends: int) -> None:
        self._open = max(0, self._open - sends)

    @property
    def filled(self) -> float:
        return fill(self._bytes, self._bytes_max, self._open, self._sends_max)

    @property
    def level(self) -> Level:
        return level(self.filled)

    @property
    def room(self) -> int:
        """How many sends may still be accepted."""
        if not accepts(self.level):
            return 0
        return max(0, math.ceil(FULL * self._sends_max) - self._open)
