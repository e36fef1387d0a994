"""Calls on their way to a writer or a reader and back, for one greenlet that waits."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from gevent.hub import Waiter

from appliance.kernel.batch import Call, Outcome
from appliance.kernel.reader import Reader

T = TypeVar("T")


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


class Reading(Generic[T]):
    """One function on its way to a reader's thread. Who gives up need not wait."""

    __slots__ = ("_cancelled", "args", "function", "waiter")

    def __init__(self, function: Callable[..., T], args: tuple[Any, ...]) -> None:
        self.function = function
        self.args = args
        self.waiter = Waiter()
        self._cancelled = False

    def cancel(self) -> None:
        """Have the read stopped soon; whoever waits for it gets ReadCancelled."""
        self._cancelled = True

    def is_cancelled(self) -> bool:
        return self._cancelled

    def wait(self) -> T:
        """The result, or what the function raised. By one greenlet, once."""
        outcome: Outcome = self.waiter.get()
        return outcome.unwrap()  # type: ignore[no-any-return]
