"""A receiver in this process: the inbox of the same appliance, without a socket."""

from collections.abc import Callable, Iterable
from typing import Any

from appliance.broker import wire
from appliance.broker.dispatch import Receiver
from appliance.broker.service import Broker
from appliance.broker.writes import Claim
from appliance.kernel.errors import ApplianceError
from appliance.kernel.loop import Loop

Callback = Callable[[list[wire.Push]], Iterable[str] | None]
OnEvent = Callable[[dict[str, Any]], None]
FIRST_PAUSE_MS = 200


class LocalLink(Loop):
    """Hands deliveries to `callback`, which stores them and returns.

    What it returns are the message_ids it has; None means all. What it has not, or all of them
    when it raises, comes again after a pause that doubles. It runs in a greenlet of its own, so
    it may wait for its store; others are not held up.
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
        """Raises NoSuchMesh, NotAMember, MemberIsRevoked or AlreadyConnected."""
        super().__init__(broker.clock, broker.log)
        self._broker = broker
        self._callback = callback
        self._on_event = on_event or (lambda _event: None)
        self._out: list[Claim] = []
        self._failures = 0
        self.closed: tuple[int, str] | None = None
        row = broker.directory.mesh(mesh)
        self._receiver: Receiver = broker.receiver(
            "local",
            row,
            broker.directory.member(row.id, member),
            self._take,
            self._on_event,
            self._close,
        )

    def run_once(self, now_ms: int) -> dict[str, int]:
        claims, self._out = self._out, []
        if not claims:
            return {"delivered": 0}
        pushes = [claim.push for claim in claims]
        stored: set[str] = set()
        try:
            told = self._callback(pushes)
            stored = {push.message_id for push in pushes} if told is None else set(told)
            self._failures = 0 if stored else self._failures + 1
        except ApplianceError:
            self._failures += 1
        except Exception as error:
            self._failures += 1
            self.log.error("a local receiver failed", error, mesh=self._receiver.mesh.slug)
        self._broker.dispatch.ack(self._receiver, stored)
        self._give_back([one for one in claims if one.push.message_id not in stored])
        return {"delivered": len(stored)}

    def set_status(self, status: str) -> None:
        """`idle` gets everything, `working` and `dnd` only what is urgent."""
        self._receiver.rank_max = 2 if status == "idle" else 0
        self._broker.dispatch.feed(self._receiver)

    def stop(self, timeout_seconds: float = 0.5) -> None:
        """What it holds and has not acked is delivered to the member's next receiver."""
        super().stop(timeout_seconds)
        self._broker.leave(self._receiver)

    def _take(self, claims: list[Claim]) -> None:
        self._out += claims
        self.nudge()

    def _give_back(self, claims: list[Claim]) -> None:
        if not claims:
            return
        for claim in claims:
            self._receiver.let_go(claim.push.message_id)
        most = int(self._broker.settings.retry_seconds_max * 1000)
        pause_ms = min(FIRST_PAUSE_MS * 2 ** min(self._failures, 20), most)
        self._broker.release(self._receiver.owner, [claim.id for claim in claims], pause_ms)

    def _close(self, code: int, reason: str) -> None:
        """The member was revoked, or has another receiver now."""
        self.closed = code, reason
        self._on_event({"type": "closed", "code": code, "reason": reason})
        self._stop.set()
        self._nudged.set()
        self._broker.leave(self._receiver)
