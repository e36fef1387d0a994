"""A connection of a member in this process: the inbox of the same appliance, without a socket."""

from collections.abc import Callable, Iterable
from typing import Any

from appliance.broker.member_connection import MemberConnection
from appliance.broker.service import RETRY_SECONDS_MAX, Broker
from appliance.broker.writes import Claim
from appliance.kernel.errors import ApplianceError
from appliance.kernel.loop import Loop
from appliance.kernel.retry import RetrySettings, delay_seconds
from appliance.mesh.push import Push

Callback = Callable[[list[Push]], Iterable[str] | None]
OnEvent = Callable[[dict[str, Any]], None]
BACKOFF_INITIAL_SECONDS = 0.2


class LocalConnection(Loop):
    """Passes deliveries to `callback`, which stores them.

    The callback returns the message ids that it has stored, or None for all of them. The others,
    or all of them if it raises, are delivered again after a growing delay. The callback runs in a
    greenlet of its own and may wait for its store.
    """

    name = "broker_local"

    def __init__(
        self,
        broker: Broker,
        mesh: str,
        member: str,
        callback: Callback,
        on_event: OnEvent | None = None,
    ) -> None:
        """Raises MeshNotFound, NotAMember, MemberIsRevoked or AlreadyConnected."""
        super().__init__(broker.clock, broker.log)
        self._broker = broker
        self._callback = callback
        self._on_event = on_event or (lambda _event: None)
        self._claims: list[Claim] = []
        self._failures = 0
        self.closed: tuple[int, str] | None = None
        row = broker.directory.mesh(mesh)
        self._connection: MemberConnection = broker.connect(
            "local",
            row,
            broker.directory.member(row.id, member),
            self._push,
            self._on_event,
            self._close,
        )

    def run_once(self, now_ms: int) -> dict[str, int]:
        claims, self._claims = self._claims, []
        if not claims:
            return {"delivered": 0}
        pushes = [claim.push for claim in claims]
        stored: set[str] = set()
        try:
            ids = self._callback(pushes)
            stored = {push.message_id for push in pushes} if ids is None else set(ids)
            self._failures = 0 if stored else self._failures + 1
        except ApplianceError:
            self._failures += 1
        except Exception as error:
            self._failures += 1
            self.log.error("a local connection failed", error, mesh=self._connection.mesh.slug)
        self._broker.dispatch.ack(self._connection, stored)
        self._release([claim for claim in claims if claim.push.message_id not in stored])
        return {"delivered": len(stored)}

    def set_status(self, status: str) -> None:
        """`idle` receives everything, `working` and `dnd` only messages of priority `now`."""
        self._connection.rank_max = 2 if status == "idle" else 0
        self._broker.dispatch.mark_ready(self._connection)

    def stop(self, timeout_seconds: float = 0.5) -> None:
        """Unacked deliveries go to the member's next connection."""
        super().stop(timeout_seconds)
        self._broker.disconnect(self._connection)

    def _push(self, claims: list[Claim]) -> None:
        self._claims += claims
        self.nudge()

    def _release(self, claims: list[Claim]) -> None:
        if not claims:
            return
        for claim in claims:
            self._connection.remove(claim.push.message_id)
        retry = RetrySettings(BACKOFF_INITIAL_SECONDS, RETRY_SECONDS_MAX)
        delay_ms = int(delay_seconds(retry, self._failures + 1) * 1000)
        self._broker.release(self._connection.owner, [claim.id for claim in claims], delay_ms)

    def _close(self, code: int, reason: str) -> None:
        """The member was revoked or has a newer connection."""
        self.closed = code, reason
        self._on_event({"type": "closed", "code": code, "reason": reason})
        self._stop.set()
        self._nudged.set()
        self._broker.disconnect(self._connection)
