"""Who waits for the work of this greenlet: so that long work can end when nobody does.

The server sets it once for each connection. Work that nobody asked for over a connection, as that
of loops, has no caller.
"""

from contextvars import ContextVar
from typing import Protocol


class Caller(Protocol):
    def is_gone(self) -> bool:
        """Whether the client has disconnected. Asked on the event loop; never waits."""


current: ContextVar[Caller | None] = ContextVar("caller", default=None)
