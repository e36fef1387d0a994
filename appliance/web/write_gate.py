"""Refuses client writes for some time (maintenance mode), while reads go on.

Requests enter through the guard, which has the gate: HTTP requests by method, requests on sockets
when charged, tools by their changes. Routes that do not declare otherwise are refused, including
new ones.
"""

from collections.abc import Callable
from typing import Any

from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import Unavailable
from appliance.kernel.tool import Tool

GOING_AWAY = 1001  # the code in RFC 6455
RETRY_SECONDS_MAX = 60.0  # may end earlier than planned
CloseSocket = Callable[[int, str], Any]


class UnderMaintenance(Unavailable):
    code = "MAINTENANCE"
    default_message = "the appliance is in maintenance mode: it refuses writes, reads go on"
    default_hint = "wait the seconds in Retry-After; for the operator: agentlip maintenance off"


class WriteGate:
    """A gate that is open, or closed until a wall clock time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_ms = 0
        self._sockets: dict[object, CloseSocket] = {}

    @property
    def seconds_left(self) -> float:
        """Return 0 while writes are admitted."""
        return max(0.0, (self._until_ms - self._clock.now_ms()) / 1000)

    def close_until(self, until_ms: int) -> None:
        """Close the gate until this time, and sockets on which clients write. 0 opens the gate."""
        self._until_ms = until_ms
        if self.seconds_left:
            for close in list(self._sockets.values()):
                close(GOING_AWAY, UnderMaintenance.default_message)

    def check(self, unless: bool = False) -> None:
        """Raise UnderMaintenance unless writes are admitted, or this one."""
        left = self.seconds_left
        if left and not unless:
            raise UnderMaintenance(
                details={"until": iso(self._until_ms)},
                retry_after=max(1.0, min(left, RETRY_SECONDS_MAX)),
            )

    def check_tool(self, tool: Tool) -> None:
        self.check(unless=tool.changes == "nothing")

    def watch(self, close: CloseSocket) -> Callable[[], object]:
        """Register a writing socket, which `close` closes when maintenance begins, and return a
        function that cancels the registration."""
        key = object()
        self._sockets[key] = close
        return lambda: self._sockets.pop(key, None)
