"""The connection to a mesh's broker elsewhere: authenticates, negotiates, stores pushes and acks.

    waiting ──backoff over──▶ connecting ──negotiated──▶ connected
       ▲                          │                          │
       └──── lost, silent, replaced, refused ◀───────────────┤
                                  │                          │
    stopped ◀── 4010, 4011, 4012, revoked ───────────────────┘

A round handles the frames that have arrived and returns, so that `stop` does not wait for a broker.
"""

import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from appliance.inbox import metrics, negotiation, wire
from appliance.inbox.service import Inbox, MeshOutbox
from appliance.kernel.errors import ApplianceError, Unauthenticated, Unavailable
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.retry import RetrySettings, delay_seconds
from appliance.kernel.threads import yield_to_loop
from appliance.mesh.broker_endpoint import BrokerEndpoint
from appliance.mesh.canonical import NotCanonical, canonical
from appliance.mesh.instance import MemberInstance
from appliance.mesh.negotiation import NAMES, POLICY
from appliance.mesh.push import Push
from appliance.mesh.signing import hello_text
from appliance.sdk.discovery import remote
from appliance.sdk.http import json_object
from appliance.sdk.websocket import SocketBroken, SocketRefused, WebSocket

PATH = "/broker/v1/link"
ELSEWHERE = "MEMBER_RUNS_ELSEWHERE"
COPIES = {4003: "replaced_by_newer_connection", 4004: "member_already_connected", ELSEWHERE: ""}
"""Close codes that another connection with the same key causes, and their reasons."""

SLOW_FAILURES = 100  # count as so many failures: the longest backoff
TEXT_BYTES_MAX = 256 * 1024  # one message with its meta
TEXT_MAX = 500  # characters of a broker's text to log and store
REVOKED, ROTATED = "member_revoked", "member_keypair_rotated"
EPOCH_CHARACTERS_MAX = 64
LISTEN_SECONDS = 1.0
SKIPPED_FRAMES_MAX = 100  # other frames while a certain type is expected
FRAME_OVERHEAD_BYTES = 64 * 1024  # a push's size without the text
ESCAPED_BYTES_MAX = 6  # one text byte takes at most this many in JSON
STATES = ("connecting", "connected", "waiting", "stopped")
HELLO_SECONDS = 10.0  # time that a broker has for hello and negotiation
SILENCE_SECONDS = 75.0  # a link without any frame for this long is closed


class ConnectionStopped(Exception):
    """The connection must not be retried; the text is the reason."""


class BrokerConnection(Loop):
    """The connection for one mesh. The outbox gets the broker's promises about sends."""

    name = "inbox_link"
    interval_seconds = 0.005
    frames_max = 200  # decoded, and stored in one transaction, before other greenlets run
    retry = RetrySettings()  # before reconnecting

    def __init__(
        self,
        endpoint: BrokerEndpoint,
        inbox: Inbox,
        outbox: MeshOutbox | None,
        instance: MemberInstance,
        log: Log,
        dial: Callable[..., WebSocket] = WebSocket,
    ) -> None:
        super().__init__(inbox.clock, log)
        self.mesh = endpoint.mesh
        self._endpoint = endpoint
        self._inbox = inbox
        self._signer = inbox.keys.in_mesh(endpoint.mesh)
        self._outbox = outbox
        self._instance = instance
        self._dial = dial
        self._link: WebSocket | None = None
        self._failures = 0
        self._next_attempt = float("-inf")
        self._buffered: deque[bytes] = deque()
        self._refused_pushes = 0
        self._member = ""  # the last hello's key
        inbox.set_link(self.mesh, "waiting", "not connected yet")

    @property
    def link_state(self) -> wire.LinkState:
        return self._inbox.links[self.mesh]

    def stop(self, timeout_seconds: float = 0.5) -> None:
        super().stop(timeout_seconds)
        self._close()

    def run_once(self, now_ms: int) -> dict[str, int]:
        """Connect if it is time, or handle received frames. A broker's faults do not raise."""
        if self.link_state.reason in (REVOKED, ROTATED) and self._member != self._signer.public_hex:
            self._next_attempt = float("-inf")
        left = self._next_attempt - self.clock.monotonic()
        if left > 0:
            self._stop.wait(min(LISTEN_SECONDS, left))
            return {}
        try:
            if self._link is None:
                self._connect()
            self._listen()
        except ConnectionStopped as stop:
            self._stop_for_good(str(stop))
        except (Unauthenticated, SocketRefused) as error:
            if error.message == REVOKED:
                self._stop_for_good(REVOKED)
            else:
                self._wait("refused", error.message)
        except Unavailable as error:
            self._handle_close(error.details.get("code"), error.message)
        return {}

    # -- connecting -------------------------------------------------------------------------

    def _connect(self) -> None:
        # The last failure's reason stays: only another reason is logged again.
        self._inbox.set_link(self.mesh, "connecting", self.link_state.reason)
        frame_bytes_max = ESCAPED_BYTES_MAX * TEXT_BYTES_MAX + FRAME_OVERHEAD_BYTES
        address = remote({"AGENTLIP_URL": self._endpoint.url})
        self._link = self._dial(address, PATH, self._endpoint.ca_file, frame_bytes_max)
        ack = self._authenticate()
        self._inbox.broker_versions[self.mesh] = _text(ack, "broker_version")
        self._inbox.member_names[self.mesh] = _text(ack, "name")
        offered = self._instance.to_feature()
        optional = [offered if name == POLICY else name for name in negotiation.OPTIONAL]
        self._send(type="negotiate", require=list(negotiation.REQUIRED), optional=optional)
        answer = self._expect("negotiated")
        agreed = negotiation.agree(answer.get("supported"), answer.get("missing_required"))
        if agreed.problem is not None:
            self._report_negotiation(agreed.problem.reason, agreed.problem.code, answer)
            raise ConnectionStopped(agreed.problem.reason)
        for problem in agreed.dropped:
            self.log.warning(
                "feature_optional_param_invalid", mesh=self.mesh, feature=problem.reason
            )
        if self._outbox is not None:
            try:
                self._outbox.set_retention(self.mesh, agreed.retention_days)
            except ApplianceError as error:
                raise ConnectionStopped(error.message) from None
            if epoch := _text(ack, "epoch"):
                self._outbox.set_epoch(self.mesh, epoch[:EPOCH_CHARACTERS_MAX])
        self._failures = 0
        self._inbox.note_accepted(self.mesh)
        self._inbox.open_link(self.mesh, "connected", self._send_status, agreed.features)

    def _authenticate(self) -> dict[str, Any]:
        """Return the broker's hello_ack, after signing its id and challenge if required."""
        member = self._member = self._signer.public_hex
        self._send(type="hello", mesh=self.mesh, member=member)
        answer = self._expect("challenge", "hello_ack")
        if answer["type"] == "hello_ack":
            return answer
        broker, nonce = str(answer.get("broker_id")), str(answer.get("nonce"))
        if self._endpoint.broker_id not in (None, broker):
            raise SocketRefused("the broker's id differs from broker_id in [[inbox.brokers]]")
        text = hello_text(broker, self.mesh, member, nonce)
        signature = self._signer.sign(text).hex()
        self._send(type="hello", mesh=self.mesh, member=member, nonce=nonce, signature=signature)
        return self._expect("hello_ack")

    def _expect(self, *kinds: str) -> dict[str, Any]:
        """Return the next frame with one of these types. Later frames stay buffered."""
        deadline = self.clock.monotonic() + HELLO_SECONDS
        assert self._link is not None
        for _ in range(SKIPPED_FRAMES_MAX):
            while not self._buffered:
                if self.clock.monotonic() >= deadline:
                    reason = f"the broker did not send {kinds[0]} within {HELLO_SECONDS:g} s"
                    raise SocketBroken(reason)
                self._buffered.extend(self._link.receive(LISTEN_SECONDS))
            frame = json_object(self._buffered.popleft())
            if frame.get("type") in kinds:
                return frame
            if frame.get("type") == "error":
                self._raise_refusal(frame)
        raise SocketBroken(f"the broker sent other frames instead of {kinds[0]}")

    def _raise_refusal(self, frame: dict[str, Any]) -> None:
        code, details = str(frame.get("code")), frame.get("details")
        if code == "MEMBER_REVOKED":
            rotated = isinstance(details, dict) and bool(details.get("successor"))
            raise ConnectionStopped(ROTATED if rotated else REVOKED)
        if code == ELSEWHERE and isinstance(details, dict):
            self._inbox.note_copy(self.mesh, details)
            raise SocketBroken(str(frame.get("error"))[:TEXT_MAX], details={"code": ELSEWHERE})
        raise SocketRefused(f"the broker refused the connection: {code[:60]}")

    # -- connected ---------------------------------------------------------------------------

    def _listen(self) -> None:
        """Store received pushes, then ack them, in this order."""
        assert self._link is not None
        messages = list(self._buffered) or self._link.receive(LISTEN_SECONDS)
        self._buffered.clear()
        if not messages and self.clock.monotonic() - self._link.received_at > SILENCE_SECONDS:
            raise SocketBroken("the broker is silent")
        for start in range(0, len(messages), self.frames_max):
            frames = map(self._on_frame, messages[start : start + self.frames_max])
            pushes = [push for push in frames if push is not None]
            if pushes:
                self._inbox.receive_many(pushes, "link")
                self._send(type="client_ack", message_ids=[push.message_id for push in pushes])
            yield_to_loop()

    def _on_frame(self, message: bytes) -> Push | None:
        frame = json_object(message)
        kind = frame.pop("type", None)
        if kind == "push":
            return self._check(frame)
        if kind == "event":
            self._handle_event(frame)
        elif kind == "error":
            self.log.warning(
                "the broker refused a frame", mesh=self.mesh, code=str(frame.get("code"))[:60]
            )
        elif kind is None:
            metrics.invalid.labels("frame").inc()
        return None

    def _check(self, frame: dict[str, Any]) -> Push | None:
        """Return a valid push, or None. An invalid push is not acked, so the broker keeps it."""
        try:
            push = msgspec.convert(frame, wire.ReceivedPush)
            # The frame is not measured: JSON may take six bytes for one, and a text that the broker
            # accepted would be refused here.
            size = len(push.body.encode()) + len(canonical(push.meta) if push.meta else b"")
        except (msgspec.ValidationError, NotCanonical) as error:
            self._refuse("push", str(error).rpartition("at `")[2].rstrip("`")[:60])
            return None
        if push.mesh != self.mesh:
            self._refuse("mesh", "mesh")
        elif size > TEXT_BYTES_MAX:
            self._refuse("size", "body")
        else:
            return push
        return None

    def _refuse(self, kind: str, field: str) -> None:
        metrics.invalid.labels(kind).inc()
        self._refused_pushes += 1
        if self._refused_pushes & (self._refused_pushes - 1) == 0:  # the 1st, 2nd, 4th, 8th, …
            self.log.warning(
                "a push was refused; the broker keeps it", mesh=self.mesh, what=kind, field=field
            )

    def _handle_event(self, frame: dict[str, Any]) -> None:
        self._inbox.on_broker_event(self.mesh, frame)
        if frame.get("member") != self._member:
            return
        if frame.get("event") == REVOKED:
            raise ConnectionStopped(REVOKED)
        if frame.get("event") == "member_runs_elsewhere":
            self._inbox.note_copy(self.mesh, frame)

    # -- disconnected ------------------------------------------------------------------------

    def _handle_close(self, code: Any, message: str) -> None:
        if code in NAMES:
            self._report_negotiation(message, code, {})
            self._stop_for_good(NAMES[code])
        elif code in COPIES:
            # Another process uses our key, or an old connection is still open: reconnect slowly.
            self.log.warning("another connection uses this member's key", mesh=self.mesh, code=code)
            self._failures += SLOW_FAILURES
            self._wait("replaced", COPIES[code] or message)
        else:
            self._wait("lost", message)

    def _wait(self, cause: str, message: str) -> None:
        delay = delay_seconds(self.retry, self._failures + 1, random.random())
        self._failures += 1
        self._next_attempt = self.clock.monotonic() + delay
        if message != self.link_state.reason:  # once per reason, not per attempt
            self.log.info("not connected to the broker", mesh=self.mesh, why=cause, reason=message)
        self._disconnect("waiting", cause, message)

    def _stop_for_good(self, reason: str) -> None:
        """Stop until the next start or, after a revocation, until the key is replaced."""
        if reason == REVOKED:
            self._inbox.note_revoked(self.mesh, self._member)
        self.log.error("the connection to the broker is stopped", mesh=self.mesh, reason=reason)
        self._next_attempt = float("inf")
        self._disconnect("stopped", "stopped", reason)

    def _disconnect(self, state: str, cause: str, reason: str) -> None:
        self._close()
        metrics.reconnects.labels(cause).inc()
        self._inbox.set_link(self.mesh, state, reason)
        self._inbox.close_link(self.mesh, reason if state == "stopped" else cause)

    def _report_negotiation(self, reason: str, code: int, answer: dict[str, Any]) -> None:
        """Log everything about a failed negotiation in one line."""
        self.log.warning(
            "feature negotiation failed",
            mesh=self.mesh,
            code=code,
            reason=reason,
            required=list(negotiation.REQUIRED),
            optional=list(negotiation.OPTIONAL),
            supported=_short(answer.get("supported")),
            missing_required=_short(answer.get("missing_required")),
        )
        self._inbox.announce("feature_negotiation_failed", self.mesh, code=code, reason=reason)

    def _close(self) -> None:
        link, self._link = self._link, None
        self._buffered.clear()
        if link is not None:
            link.close()

    def _send_status(self, status: str) -> None:
        with suppress(Unavailable):  # left to the next round
            self._send(type="status", status=status)

    def _send(self, **frame: Any) -> None:
        if self._link is None:  # a status, after the link was closed
            raise SocketBroken
        self._link.send(msgspec.json.encode(frame))


def _text(frame: dict[str, Any], name: str) -> str | None:
    value = frame.get(name)
    return value if isinstance(value, str) else None


def _short(value: Any) -> str:
    return msgspec.json.encode(value)[:4000].decode("utf-8", "replace")
