"""Requests to a writer or a reader thread, for one waiting greenlet."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import gevent
import msgspec
from gevent.hub import Waiter

from appliance.kernel.batch import CallOutcome
from appliance.kernel.store_errors import StoreBusy
from appliance.kernel.writer import WriterRequest

STALL_CHECK_SECONDS = 1.0  # between a waiting request's checks whether the writer has stalled
SEND_AGAIN = "send it again with the same Idempotency-Key"
T = TypeVar("T")


class WriteRequest(WriterRequest, eq=False):
    """`is_stalled`: whether the writer makes no progress, so that waiting longer is no use."""

    is_stalled: Callable[[], bool] = bool
    waiter: Waiter = msgspec.field(default_factory=Waiter)

    def wait(self) -> list[CallOutcome]:
        """Wait for the outcomes, in the calls' order. Call once, in one greenlet.

        All are StoreBusy if the writer stalls meanwhile; the calls may still be committed later.
        """
        while not self.is_stalled() or self.waiter.ready():
            with gevent.Timeout(STALL_CHECK_SECONDS, False):
                self.waiter.get()
                return self.outcomes
        unknown = StoreBusy(
            "the writer has stalled; whether this was stored is unknown", hint=SEND_AGAIN
        )
        return [CallOutcome(error=unknown) for _ in self.calls]


class ReadRequest(msgspec.Struct, Generic[T], eq=False):
    """One function for a reader thread. Once `is_cancelled`, which is called in that thread, is
    true, the function stops soon, and `wait` raises ReadCancelled."""

    function: Callable[..., T]
    args: tuple[Any, ...]
    is_cancelled: Callable[[], bool] | None = None
    waiter: Waiter = msgspec.field(default_factory=Waiter)

    def wait(self) -> T:
        """Wait for the result, or raise the function's error. Call once, in one greenlet."""
        result: T = self.waiter.get().unwrap()
        return result
