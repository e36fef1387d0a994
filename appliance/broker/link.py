"""`WS /broker/v1/link`: hello, negotiation, pushes, acks.

    client   {"type": "hello", "mesh": …, "member": KEY}
    server   {"type": "challenge", "broker_id": …, "nonce": …, "now_ms": …}
    client   {"type": "hello", "mesh": …, "member": KEY, "nonce": …, "signature": hex}
    server   {"type": "hello_ack", "mesh": …, "member": KEY, "name": …, "broker_version": …}
    client   {"type": "negotiate", "require": […], "optional": […]}
    server   {"type": "negotiated", "supported": {…}, "missing_required": []}
             or the same and then a close with 4010, 4011 or 4012
    server   {"type": "push", "message_id": …, …}
    client   {"type": "client_ack", "message_id": …}
    client   {"type": "status", "status": "idle"}     server   {"type": "event", "event": …}
    server   {"type": "error", "error": …, "code": …}: what was said wrong changed nothing

A delivery is leased before it is pushed and done when the ack is written. Without an ack it is
pushed again, to whichever connection the member has then.
"""

from typing import Any

import msgspec

from appliance import __version__
from appliance.broker import metrics, negotiation, wire
from appliance.broker.directory import MemberRow, MeshRow
from appliance.broker.dispatch import CONNECTED, AlreadyConnected, Receiver
from appliance.broker.service import Broker
from appliance.broker.writes import Claim
from appliance.kernel.auth import Principal
from appliance.kernel.errors import ApplianceError, Invalid, Unauthenticated
from appliance.kernel.ids import random_id
from appliance.kernel.wakeup import Signal
from appliance.mesh import frames
from appliance.mesh.negotiation import NAMES
from appliance.web.body import refuse_field
from appliance.web.frame import pieces, text_frame
from appliance.web.socket import (
    POLICY_VIOLATION,
    TOO_BIG,
    Socket,
    SocketSettings,
    close_code,
)

_decoder: msgspec.json.Decoder[frames.MemberFrame] = msgspec.json.Decoder(frames.MemberFrame)
_encode = msgspec.json.Encoder().encode
QUIET = {"idle": 2, "working": 0, "dnd": 0}


class Link:
    """One socket, from its hello to its end."""

    def __init__(
        self, socket: Socket, broker: Broker, who: Principal, settings: SocketSettings
    ) -> None:
        self._socket = socket
        self._broker = broker
        self._who = who
        self._settings = settings
        self._signal = Signal()
        self._out: list[Claim] = []
        self._nonce = ""
        self._place: tuple[MeshRow, MemberRow] | None = None
        self._receiver: Receiver | None = None

    def run(self) -> int:
        try:
            return self._socket.run(self._on_messages, self._signal.set, self._write)
        finally:
            receiver, self._receiver = self._receiver, None
            if receiver is not None:
                self._broker.leave(receiver)

    # -- the writing greenlet ------------------------------------------------------------------

    def _write(self) -> None:
        clock, settings = self._broker.clock, self._settings
        until = clock.monotonic() + settings.hello_seconds_max
        while self._receiver is None:
            self._signal.clear()
            self._socket.flush()
            left = until - clock.monotonic()
            if left <= 0:
                self._socket.close(POLICY_VIOLATION, "hello and negotiate did not come in time")
            elif self._receiver is None:
                self._signal.wait(min(left, settings.ping_seconds / 4))
        while True:
            # Clearing comes first: what is dealt while the lines below write sets it again.
            self._signal.clear()
            claims, self._out = self._out, []
            self._socket.flush()
            if claims:
                for piece in pieces(push_frame(claim.push) for claim in claims):
                    self._socket.send(piece)
            else:
                self._signal.wait(settings.ping_seconds / 4)

    def _take(self, claims: list[Claim]) -> None:
        self._out += claims  # at most the receiver's window
        self._signal.set()

    def _say(self, event: dict[str, Any]) -> None:
        self._socket.post(text_frame(_encode(event)))

    # -- the reading greenlet ------------------------------------------------------------------

    def _on_messages(self, messages: list[bytes]) -> None:
        acked: list[str] = []
        for message in messages:
            if len(message) > self._settings.frame_bytes_max:
                self._socket.close(TOO_BIG, "the frame is too large")
                break
            try:
                self._hear(decoded(message), acked)
            except ApplianceError as error:
                self._refuse(error)
            if self._socket.is_closing:
                break
        if acked and self._receiver is not None:
            self._broker.dispatch.ack(self._receiver, acked)

    def _hear(self, said: frames.MemberFrame, acked: list[str]) -> None:
        if isinstance(said, frames.Hello):
            self._hello(said)
        elif self._place is None:
            raise Unauthenticated("hello comes first", hint="see docs/broker.md")
        elif isinstance(said, frames.Negotiate):
            self._negotiate(said)
        elif self._receiver is None:
            raise Invalid("negotiate comes before this", hint="see docs/broker.md")
        elif isinstance(said, frames.ClientAck):
            if said.message_id is not None:
                acked.append(said.message_id)
            acked += said.message_ids
        else:
            self._receiver.rank_max = QUIET[said.status]
            self._broker.dispatch.feed(self._receiver)

    def _hello(self, said: frames.Hello) -> None:
        if self._place is not None:
            raise Invalid("hello was said before")
        trusted = not said.signature and self._who.allows(wire.ACCEPT)
        if not trusted and not self._broker.signatures.hello(said, self._nonce):
            self._challenge()
            return
        directory = self._broker.directory
        mesh = directory.mesh(said.mesh)
        member = directory.member(mesh.id, said.member)
        self._place = mesh, member
        self._socket.identified = True
        self._say(
            {
                "type": "hello_ack",
                "mesh": mesh.slug,
                "member": member.pubkey,
                "name": member.name,
                "broker_version": __version__,
                "broker_id": self._broker.signatures.broker_id,
                "now_ms": self._broker.clock.now_ms(),
            }
        )

    def _challenge(self) -> None:
        """Once for each link: a second hello without a signature is answered with the same."""
        self._nonce = self._nonce or random_id()
        self._say(
            {
                "type": "challenge",
                "broker_id": self._broker.signatures.broker_id,
                "nonce": self._nonce,
                "now_ms": self._broker.clock.now_ms(),
            }
        )

    def _negotiate(self, said: frames.Negotiate) -> None:
        if self._receiver is not None or self._place is None:
            raise Invalid("this link is negotiated already")
        mesh, member = self._place
        supported = negotiation.offered(mesh, self._broker.settings.inline_bytes_max)
        missing, problem = negotiation.judge(said.require, supported)
        self._say({"type": "negotiated", "supported": supported, "missing_required": missing})
        if problem is not None:
            metrics.negotiations.labels(NAMES[problem.code]).inc()
            self._broker.log.warning(
                "a link was not opened", reason=problem.reason, mesh=mesh.slug,
                member=member.pubkey[:16], required=len(said.require),
            )  # fmt: skip
            self._socket.close(problem.code, problem.reason)
            return
        # It may have been revoked since it said hello.
        self._broker.directory.member(mesh.id, member.pubkey)
        self._receiver = self._broker.receiver(
            "link", mesh, member, self._take, self._say, self._socket.close
        )
        self._socket.identify()
        metrics.negotiations.labels("opened").inc()
        self._signal.set()

    def _refuse(self, error: ApplianceError) -> None:
        """Before the link is open a refusal ends it; afterwards it is an answer."""
        self._socket.answer(error_frame(error))
        if isinstance(error, AlreadyConnected):
            metrics.negotiations.labels("already_connected").inc()
            self._socket.close(CONNECTED, error.message)
        elif self._receiver is None:
            metrics.negotiations.labels("refused").inc()
            self._socket.close(close_code(error), error.message)


def decoded(message: bytes) -> frames.MemberFrame:
    try:
        return _decoder.decode(message)
    except msgspec.ValidationError as error:
        refuse_field(str(error))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise Invalid("the frame is not valid JSON") from None


def push_frame(push: wire.Push) -> bytes:
    body = _encode(push)
    return text_frame(b'{"type":"push",' + body[1:])


def error_frame(error: ApplianceError) -> bytes:
    said = {"type": "error", "error": error.message, "code": error.code,
            "details": error.details, "hint": error.hint}  # fmt: skip
    return text_frame(_encode(said))
