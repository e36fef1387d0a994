"""Schedules deliveries to receivers that may be down: which may start, and what became of them.
Pure.

Times are seconds on one monotonic clock.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, TypeVar

from msgspec import Struct

from appliance.kernel.circuit_breaker import CircuitBreaker

T = TypeVar("T")

CallOutcome = Literal["delivered", "failed", "gone"]
"""`failed`: try again later. `gone`: the receiver wants no more calls."""


class CallResult(Struct, frozen=True):
    """A call's result. `reason` is stored, so it must not contain secrets."""

    outcome: CallOutcome
    reason: str = ""
    retry_after_seconds: float | None = None


class Receiver:
    """One receiver's running calls and circuit breaker."""

    __slots__ = ("breaker", "running")

    def __init__(self, failures_max: int) -> None:
        self.breaker = CircuitBreaker(failures_max)
        self.running = 0

    def free(self, now: float, running_max: int) -> int:
        """Return how many more calls may start now: none while the breaker is open, then one
        probe."""
        free = max(0, running_max - self.running)
        state = self.breaker.state(now)
        return 0 if state == "open" else min(1, free) if state == "half-open" else free

    def begin(self) -> None:
        self.breaker.begin()
        self.running += 1


def in_turn(items: Sequence[T], turn: int) -> Iterator[T]:
    """Yield all items, beginning with another one each turn, so that none is always the last."""
    for index in range(len(items)):
        yield items[(index + turn) % len(items)]
