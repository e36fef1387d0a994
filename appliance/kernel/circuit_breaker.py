"""A circuit breaker: stops calls to something that keeps failing. Pure; the caller passes the time.

    closed ──failures_max failures in a row──▶ open ──open_seconds later──▶ half-open
      ▲                                         ▲                              │ one probe
      └──────────────── success ────────────────┼──────────────────────────────┤
                                                └─────────── failure ──────────┘

Times are seconds of one monotonic clock.
"""

from typing import Literal

State = Literal["closed", "open", "half-open"]


class CircuitBreaker:
    """A breaker's state. `failures`: failures in a row. `openings`: how often in a row the
    breaker opened, 0 while closed."""

    __slots__ = ("_failures_max", "_open_until", "_probing", "failures", "openings")

    def __init__(self, failures_max: int) -> None:
        self._failures_max = failures_max
        self._open_until = 0.0
        self._probing = False
        self.failures = 0
        self.openings = 0

    @property
    def is_closed(self) -> bool:
        """Return whether every call is allowed."""
        return not self.openings

    def state(self, now: float) -> State:
        """Return the state at `now`. While a half-open breaker's probe runs, the state is open
        again."""
        if not self.openings:
            return "closed"
        return "open" if now < self._open_until or self._probing else "half-open"

    def seconds_left(self, now: float) -> float:
        """Return the seconds until the next probe is allowed; 0 unless open."""
        return max(0.0, self._open_until - now) if self.openings else 0.0

    def begin(self) -> None:
        """Note that a call starts. If the breaker isn't closed, this call is the probe that
        decides."""
        self._probing = self.openings > 0

    def note_success(self) -> None:
        """Note a successful call, which closes the breaker."""
        self.failures = 0
        self.openings = 0
        self._probing = False

    def note_failure(self, now: float, open_seconds: float, *, at_once: bool = False) -> bool:
        """Note a failed call. Return True if the failure opens the breaker.

        The breaker opens for `open_seconds` after `failures_max` failures in a row, after a failed
        probe, or, with `at_once`, after this failure. A failure while open (from a call that had
        started earlier) can only move the end later.
        """
        half_open = self.openings > 0 and (self._probing or now >= self._open_until)
        self.failures += 1
        self._probing = False
        if self.openings and not half_open:
            self._open_until = max(self._open_until, now + open_seconds)
            return False
        if not (half_open or at_once or self.failures >= self._failures_max):
            return False
        self.openings += 1
        self._open_until = now + open_seconds
        return True
