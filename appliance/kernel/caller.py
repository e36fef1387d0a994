"""The client for whom this greenlet works, so that long work can stop when the client is gone.

The server sets it once for each connection. Background loops have no caller.
"""

from contextvars import ContextVar
from typing import Protocol


class Caller(Protocol):
    def is_gone(self) -> bool:
        """Whether the client has disconnected. Called on the event loop; never waits."""


current: ContextVar[Caller | None] = ContextVar("caller", default=None)


def is_there() -> bool:
    """False once the caller has disconnected."""
    client = current.get()
    return client is None or not client.is_gone()
