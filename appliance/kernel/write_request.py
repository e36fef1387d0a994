"""Requests to a writer or a reader thread, for one waiting greenlet."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from gevent.hub import Waiter

from appliance.kernel.batch import Call, CallOutcome
from appliance.kernel.reader import Reader

T = TypeVar("T")


class WriteRequest:
    """`calls` to run in one transaction with others, or one piece of `maintenance`. `alone`: the
    calls are a batch of their own."""

    __slots__ = ("alone", "calls", "maintenance", "outcomes", "waiter")

    def __init__(
        self,
        calls: Sequence[Call],
        maintenance: Callable[[Reader], Any] | None = None,
        *,
        alone: bool = False,
    ) -> None:
        self.alone = alone
        self.calls = calls
        self.maintenance = maintenance
        self.outcomes: list[CallOutcome] = []
        self.waiter = Waiter()

    def wait(self) -> list[CallOutcome]:
        """Wait for the outcomes, in the order of the calls. Call once, in one greenlet."""
        self.waiter.get()
        return self.outcomes


def apart(batch: Sequence[WriteRequest]) -> Iterator[list[WriteRequest]]:
    """Parts the batch in its order, so that each request that is `alone` is in a part of its own.
    Empty batches have no part."""
    part: list[WriteRequest] = []
    for request in batch:
        if part and (request.alone or part[-1].alone):
            yield part
            part = []
        part.append(request)
    if part:
        yield part


class ReadRequest(Generic[T]):
    """One function for a reader thread. Waiting for it is optional."""

    __slots__ = ("_cancelled", "args", "function", "waiter")

    def __init__(self, function: Callable[..., T], args: tuple[Any, ...]) -> None:
        self.function = function
        self.args = args
        self.waiter = Waiter()
        self._cancelled = False

    def cancel(self) -> None:
        """Stop the read soon; `wait` raises ReadCancelled."""
        self._cancelled = True

    def is_cancelled(self) -> bool:
        return self._cancelled

    def wait(self) -> T:
        """Wait for the result, or raise the function's error. Call once, in one greenlet."""
        result: T = self.waiter.get().unwrap()
        return result
