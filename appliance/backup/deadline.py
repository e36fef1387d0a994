"""Time limits of checks and of calls into libraries, and why a check proves nothing."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from appliance.kernel.clock import Clock


class Undecided(Exception):
    """The check could not be finished. The text says why; the backup may be good or bad."""


class Deadline:
    def __init__(self, clock: Clock, seconds_max: float) -> None:
        self._clock = clock
        self._seconds_max = seconds_max
        self._ends = clock.monotonic() + seconds_max

    def left(self) -> float:
        """The seconds that are left; 0 at the end."""
        return max(0.0, self._ends - self._clock.monotonic())

    def is_over(self) -> bool:
        return self.left() <= 0

    def check(self) -> None:
        """Raises Undecided after the end."""
        if self.is_over():
            raise Undecided(
                f"the check took longer than backup.seconds_max, {self._seconds_max:g} s"
            )


@contextmanager
def ended_by_system(seconds_max: float) -> Iterator[None]:
    """For calls into a library that don't return to Python while they wait.

    Ctrl-C ends the process at once, and SIGALRM does after `seconds_max`. Nothing is cleaned up:
    only for work that is continued or swept by the next command.
    """
    interrupt = signal.signal(signal.SIGINT, signal.SIG_DFL)
    alarm = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds_max)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, alarm)
        signal.signal(signal.SIGINT, interrupt)
