"""The client for whom this greenlet works, and the clients' long requests.

The server sets the client once for each connection. Background loops have none.
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Protocol

from appliance.kernel.errors import ApplianceError, Unavailable

Call = Callable[[], None]


class TooManyAnonymous(Unavailable):
    code = "TOO_MANY_ANONYMOUS"
    default_message = "too many sockets, streams and long polls without a token"
    default_hint = "send 'Authorization: Bearer TOKEN'; to create one: agentlip token --help"


class Caller(Protocol):
    """A client. `authenticated`: the current request has a valid token or signature."""

    authenticated: bool

    def is_gone(self) -> bool:
        """Return whether the client has disconnected. Called in any thread, while the request
        lasts."""

    def stay(self, wake: Call) -> Call:
        """Begin a request that lasts; return a function that ends the request. `wake` is called,
        without waiting, once the client has disconnected. Raise TooManyAnonymous for a client
        without a token if such clients have too many lasting requests, of any kind."""


class Bound(Protocol):
    """Ends a request's waits (`kernel/pause_book.py`)."""

    def check(self) -> None:
        """Raise Paused if a pause applies."""

    def watch(self, wake: Call) -> Call:
        """Call `wake`, without waiting, once a pause applies; return a function that ends that."""


current: ContextVar[Caller | None] = ContextVar("caller", default=None)
request: ContextVar[Mapping[str, str]] = ContextVar("request", default=MappingProxyType({}))
"""The current request's ids: `request_id`, and as far as known `principal_id` and `traceparent`."""


bound: ContextVar[Bound | None] = ContextVar("bound", default=None)
"""The pauses that can end the current request."""


def check_pauses() -> None:
    """Raise Paused if a pause has begun that applies to the current request."""
    applied = bound.get()
    if applied is not None:
        applied.check()


def is_there() -> bool:
    """Return False once the caller has disconnected. Raises Paused."""
    check_pauses()
    client = current.get()
    return client is None or not client.is_gone()


def traceparent() -> str | None:
    """Return the `traceparent` from the request for which this greenlet works."""
    return request.get().get("traceparent")


class WaitLimit:
    """A limit on how many callers with a token wait in one place. Callers without a token have a
    separate limit, so that these places stay free."""

    def __init__(self, waiting_max: int, full: type[ApplianceError]) -> None:
        self._waiting_max = waiting_max
        self._full = full
        self.waiting = 0

    def enter(self, wake: Call) -> Call:
        """Begin to wait; return a function that leaves. `wake`: see `Caller.stay`. Raise `full`,
        or TooManyAnonymous."""
        client = current.get()
        counted = client is None or client.authenticated
        if counted and self.waiting >= self._waiting_max:
            raise self._full(details={"limit": self._waiting_max}, retry_after=1.0)
        end = client.stay(wake) if client is not None else None
        applied = bound.get()
        stop = applied.watch(wake) if applied is not None else None
        self.waiting += counted

        def leave() -> None:
            self.waiting -= counted
            for finish in (end, stop):
                if finish is not None:
                    finish()

        return leave
