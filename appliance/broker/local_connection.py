"""Connects a member in this process: the same appliance's inbox, without a socket."""

from collections.abc import Callable
from typing import Any

from appliance.broker.service import Broker
from appliance.broker.writes import Claim
from appliance.kernel.loop import Loop
from appliance.mesh.push import Push

Callback = Callable[[list[Push]], object]
OnEvent = Callable[[dict[str, Any]], None]


class LocalConnection(Loop):
    """A connection that passes deliveries to `callback`, which stores them.

    If the callback raises, the deliveries come again when their leases have expired. The callback
    runs in a separate greenlet and may wait for its store.
    """

    name = "broker_local"

    def __init__(
        self, broker: Broker, mesh: str, member: str, callback: Callback, on_event: OnEvent
    ) -> None:
        """Connect the member. Raises MeshNotFound, NotAMember, MemberIsRevoked or
        AlreadyConnected."""
        super().__init__(broker.clock, broker.log)
        self._broker = broker
        self._callback = callback
        self._claims: list[Claim] = []
        self.closed = ""  # the reason, once closed
        row = broker.directory.mesh(mesh)
        row_of_member = broker.directory.member(row.id, member)
        self._connection = broker.connect(
            "local", row, row_of_member, self._push, on_event, self._close
        )

    def run_once(self, now_ms: int) -> dict[str, int]:
        claims, self._claims = self._claims, []
        if claims:
            self._callback([claim.push for claim in claims])
            stored = [claim.push.message_id for claim in claims]
            self._broker.dispatch.ack(self._connection, stored)
        return {"delivered": len(claims)}

    def set_status(self, status: str) -> None:
        """Set the status. `idle` receives everything, `working` and `dnd` only messages with
        priority `now`."""
        self._broker.dispatch.set_status(self._connection, status)

    def stop(self, timeout_seconds: float = 0.5) -> None:
        """Stop. Unacked deliveries go to the member's next connection."""
        super().stop(timeout_seconds)
        self._broker.disconnect(self._connection)

    def _push(self, claims: list[Claim]) -> None:
        self._claims += claims
        self.nudge()

    def _close(self, _code: int, reason: str) -> None:
        """Close: the member was revoked or has a newer connection."""
        self.closed = reason
        self._stop.set()
        self._nudged.set()
        self._broker.disconnect(self._connection)
