"""The client for whom this greenlet works, and the long requests of clients.

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
    """`authenticated`: its current request has a valid token or signature."""

    authenticated: bool

    def is_gone(self) -> bool:
        """Whether the client has disconnected. Called in any thread, while its request lasts."""

    def stay(self, wake: Call) -> Call:
        """Begin a request that lasts; returns how to end it. `wake` is called, without waiting,
        once the client has disconnected. Raises TooManyAnonymous for a client without a token if
        such clients have too many of these requests, of any kind."""


current: ContextVar[Caller | None] = ContextVar("caller", default=None)
request: ContextVar[Mapping[str, str]] = ContextVar("request", default=MappingProxyType({}))
"""The ids of the current request: `request_id`, and as far as known `principal_id` and
`traceparent`."""


def is_there() -> bool:
    """False once the caller has disconnected."""
    client = current.get()
    return client is None or not client.is_gone()


def traceparent() -> str | None:
    """That of the request for which this greenlet works."""
    return request.get().get("traceparent")


class WaitLimit:
    """Limits how many callers with a token wait in one place. The others have a limit of their own,
    so that they can't take these places."""

    def __init__(self, waiting_max: int, full: type[ApplianceError]) -> None:
        self._waiting_max = waiting_max
        self._full = full
        self.waiting = 0

    def enter(self, wake: Call) -> Call:
        """Begin to wait; returns how to leave. `wake`: see `Caller.stay`. Raises `full`, or
        TooManyAnonymous."""
        client = current.get()
        counted = client is None or client.authenticated
        if counted and self.waiting >= self._waiting_max:
            raise self._full(details={"limit": self._waiting_max}, retry_after=1.0)
        end = client.stay(wake) if client is not None else None
        self.waiting += counted

        def leave() -> None:
            self.waiting -= counted
            if end is not None:
                end()

        return leave
