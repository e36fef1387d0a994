"""`WS /broker/v1/link`, a member's connection from elsewhere: hello, negotiation, pushes, acks.

    client   {"type": "hello", "mesh": …, "member": KEY}
    server   {"type": "challenge", "broker_id": …, "nonce": …, "now_ms": …}
    client   {"type": "hello", "mesh": …, "member": KEY, "nonce": …, "signature": hex}
    server   {"type": "hello_ack", "mesh": …, "member": KEY, "name": …, "broker_version": …}
    client   {"type": "negotiate", "require": […], "optional": […]}
    server   {"type": "negotiated", "supported": {…}, "missing_required": []}
             or the same, followed by a close with 4010, 4011 or 4012
    server   {"type": "push", "message_id": …, …}
    client   {"type": "client_ack", "message_id": …}
    client   {"type": "status", "status": "idle"}     server   {"type": "event", "event": …}
    server   {"type": "error", "error": …, "code": …}; the refused frame changed nothing

A delivery is leased before the push, and the row is deleted when the ack is written. Without an ack
the delivery is pushed again after the lease, on the member's connection at that time.
"""

from typing import Any

import msgspec

from appliance import __version__
from appliance.broker import metrics, negotiation, wire
from appliance.broker.dispatch import CONNECTED, AlreadyConnected
from appliance.broker.member_connection import MemberConnection
from appliance.broker.rows import MemberRow, MeshRow
from appliance.broker.service import Broker
from appliance.broker.writes import Claim
from appliance.kernel.auth import Principal
from appliance.kernel.errors import ApplianceError, Invalid, Unauthenticated
from appliance.kernel.ids import random_id
from appliance.kernel.wakeup import Wakeup
from appliance.mesh import frames
from appliance.mesh.instance import MemberInstance, instance_in
from appliance.mesh.negotiation import NAMES
from appliance.mesh.push import Push
from appliance.web.body import decode_json
from appliance.web.frame import pieces, text_frame
from appliance.web.socket import (
    HELLO_SECONDS_MAX,
    POLICY_VIOLATION,
    Socket,
    close_code,
)

_decode = msgspec.json.Decoder(frames.MemberFrame).decode
_encode = msgspec.json.Encoder().encode


class MemberSocket:
    """One socket, from hello to close."""

    def __init__(self, socket: Socket, broker: Broker, who: Principal) -> None:
        self._socket = socket
        self._broker = broker
        self._who = who
        self._wakeup = Wakeup()
        self._claims: list[Claim] = []
        self._nonce = ""
        self._identity: tuple[MeshRow, MemberRow] | None = None
        self._connection: MemberConnection | None = None

    def run(self) -> int:
        try:
            return self._socket.run(self._on_messages, self._wakeup.set, self._write)
        finally:
            connection, self._connection = self._connection, None
            if connection is not None:
                self._broker.disconnect(connection)

    # -- the writing greenlet ------------------------------------------------------------------

    def _write(self) -> None:
        clock = self._broker.clock
        until = clock.monotonic() + HELLO_SECONDS_MAX
        while self._connection is None:
            self._wakeup.clear()
            self._socket.flush()
            left = until - clock.monotonic()
            if left <= 0:
                self._socket.close(POLICY_VIOLATION, "hello and negotiate did not come in time")
            elif self._connection is None:
                self._wakeup.wait(min(left, self._socket.wait_seconds))
        while True:
            # Clear first: claims that are pushed during the writes below set the event again.
            self._wakeup.clear()
            claims, self._claims = self._claims, []
            self._socket.flush()
            if claims:
                for piece in pieces(push_frame(claim.push) for claim in claims):
                    self._socket.send(piece)
            else:
                self._wakeup.wait(self._socket.wait_seconds)

    def _push(self, claims: list[Claim]) -> None:
        self._claims += claims  # limited by the connection's prefetch
        self._wakeup.set()

    def _send_frame(self, event: dict[str, Any]) -> None:
        self._socket.post(text_frame(_encode(event)))

    # -- the reading greenlet ------------------------------------------------------------------

    def _on_messages(self, messages: list[bytes]) -> None:
        acked: list[str] = []
        for message in messages:
            try:
                self._on_frame(decode_json(_decode, message, "the frame"), acked)
            except ApplianceError as error:
                self._refuse(error)
            if self._socket.is_closing:
                break
        if acked and self._connection is not None:
            self._broker.dispatch.ack(self._connection, acked)

    def _on_frame(self, frame: frames.MemberFrame, acked: list[str]) -> None:
        if isinstance(frame, frames.Hello):
            self._handle_hello(frame)
        elif self._identity is None:
            raise Unauthenticated(
                "the first frame must be hello", hint="see the frames in docs/reference/broker.md"
            )
        elif isinstance(frame, frames.Negotiate):
            self._negotiate(frame)
        elif self._connection is None:
            raise Invalid(
                "negotiate must come before this frame",
                hint="see the frames in docs/reference/broker.md",
            )
        elif isinstance(frame, frames.ClientAck):
            if frame.message_id is not None:
                acked.append(frame.message_id)
            acked += frame.message_ids
        else:
            self._broker.dispatch.set_status(self._connection, frame.status)

    def _handle_hello(self, frame: frames.Hello) -> None:
        if self._identity is not None:
            raise Invalid("hello was sent before", hint="send negotiate next")
        trusted = not frame.signature and self._who.allows(wire.ACCEPT)
        if not trusted and not self._broker.signatures.hello(frame, self._nonce):
            self._challenge()
            return
        directory = self._broker.directory
        mesh = directory.mesh(frame.mesh)
        member = directory.member(mesh.id, frame.member)
        self._identity = mesh, member
        self._socket.identified = True
        self._send_frame(
            {
                "type": "hello_ack",
                "mesh": mesh.slug,
                "member": member.pubkey,
                "name": member.name,
                "broker_version": __version__,
                "broker_id": self._broker.signatures.broker_id,
                "epoch": self._broker.epoch,
                "now_ms": self._broker.clock.now_ms(),
            }
        )

    def _challenge(self) -> None:
        """Send the socket's challenge: a second hello without a signature gets the same one."""
        self._nonce = self._nonce or random_id()
        self._send_frame(
            {
                "type": "challenge",
                "broker_id": self._broker.signatures.broker_id,
                "nonce": self._nonce,
                "now_ms": self._broker.clock.now_ms(),
            }
        )

    def _negotiate(self, frame: frames.Negotiate) -> None:
        if self._connection is not None or self._identity is None:
            raise Invalid("this connection is negotiated already", hint="open another connection")
        mesh, member = self._identity
        supported = negotiation.offer(mesh)
        missing, problem = negotiation.check_requirements(frame.require, supported)
        if (instance := instance_of(frame)) is not None and problem is None:
            self._broker.refuse_copy(mesh, member, instance)
        self._send_frame(
            {"type": "negotiated", "supported": supported, "missing_required": missing}
        )
        if problem is not None:
            metrics.negotiations.labels(NAMES[problem.code]).inc()
            self._broker.log.warning(
                "a connection was refused", reason=problem.reason, mesh=mesh.slug,
                member=member.pubkey[:16], required=len(frame.require),
            )  # fmt: skip
            self._socket.close(problem.code, problem.reason)
            return
        # The member may have been revoked since its hello.
        self._broker.directory.member(mesh.id, member.pubkey)
        self._connection = self._broker.connect(
            "link", mesh, member, self._push, self._send_frame, self._socket.close,
            instance,
        )  # fmt: skip
        self._socket.identify()
        metrics.negotiations.labels("opened").inc()
        self._wakeup.set()

    def _refuse(self, error: ApplianceError) -> None:
        """Close the socket, unless the refusal is negotiated: then only answer it."""
        self._socket.answer(error_frame(error))
        if isinstance(error, AlreadyConnected):
            metrics.negotiations.labels("already_connected").inc()
            self._socket.close(CONNECTED, AlreadyConnected.default_message)
        elif self._connection is None:
            metrics.negotiations.labels("refused").inc()
            self._socket.close(close_code(error), error.message)


def instance_of(frame: frames.Negotiate) -> MemberInstance | None:
    try:
        return instance_in(frame.optional)
    except msgspec.ValidationError as error:
        raise Invalid(f"the member's instance is not valid: {error}") from None


def push_frame(push: Push) -> bytes:
    body = _encode(push)
    return text_frame(b'{"type":"push",' + body[1:])


def error_frame(error: ApplianceError) -> bytes:
    return text_frame(_encode({"type": "error", **error.to_body()}))
