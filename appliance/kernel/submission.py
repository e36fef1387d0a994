"""Calls on their way to a writer and back, for one greenlet that waits."""

from collections.abc import Callable, Sequence
from typing import Any

from gevent.hub import Waiter

from appliance.kernel.batch import Call, Outcome
from appliance.kernel.reader import Reader


class Submission:
    """`calls` to run in one transaction with others, or one piece of `maintenance`."""

    __slots__ = ("calls", "maintenance", "outcomes", "waiter")

    def __init__(
        self, calls: Sequence[Call], maintenance: Callable[[Reader], Any] | None = None
    ) -> None:
        self.calls = calls
        self.maintenance = maintenance
        self.outcomes: list[Outcome] = []
        self.waiter = Waiter()

    def wait(self) -> list[Outcome]:
        """The outcomes, in the order of the calls, once they are known. By one greenlet, once."""
        self.waiter.get()
        return self.outcomes
