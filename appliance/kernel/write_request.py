"""Requests to a writer or a reader thread, for one waiting greenlet."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
from gevent.hub import Waiter

from appliance.kernel.batch import CallOutcome
from appliance.kernel.writer import WriterRequest

T = TypeVar("T")


class WriteRequest(WriterRequest, eq=False):
    waiter: Waiter = msgspec.field(default_factory=Waiter)

    def wait(self) -> list[CallOutcome]:
        """Wait for the outcomes, in the order of the calls. Call once, in one greenlet."""
        self.waiter.get()
        return self.outcomes


class ReadRequest(msgspec.Struct, Generic[T], eq=False):
    """One function for a reader thread. Once `is_cancelled` is true, it stops soon, and `wait`
    raises ReadCancelled. It is called in that thread."""

    function: Callable[..., T]
    args: tuple[Any, ...]
    is_cancelled: Callable[[], bool] | None = None
    waiter: Waiter = msgspec.field(default_factory=Waiter)

    def wait(self) -> T:
        """Wait for the result, or raise the function's error. Call once, in one greenlet."""
        result: T = self.waiter.get().unwrap()
        return result
