"""Limits a check's time, and explains why a check proves nothing."""

from appliance.kernel.clock import Clock


class Inconclusive(Exception):
    """A check that could not be finished. The text says why; the backup may be good or bad."""


class Deadline:
    def __init__(self, clock: Clock, seconds_max: float) -> None:
        self._clock = clock
        self._seconds_max = seconds_max
        self._ends = clock.monotonic() + seconds_max

    def left(self) -> float:
        """Return the seconds left; 0 at the end."""
        return max(0.0, self._ends - self._clock.monotonic())

    def is_over(self) -> bool:
        return self.left() <= 0

    def check(self) -> None:
        """Check the deadline. Raises Inconclusive after the end."""
        if self.is_over():
            raise Inconclusive(
                f"the check took longer than backup.seconds_max, {self._seconds_max:g} s"
            )
