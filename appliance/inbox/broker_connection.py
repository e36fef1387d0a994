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
from urllib.parse import urlsplit

import msgspec

from appliance.inbox import metrics, negotiation, wire
from appliance.inbox.service import Inbox, OutboxStatus
from appliance.inbox.settings import BrokerEndpoint
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import ApplianceError, Unauthenticated, Unavailable
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.retry import RetrySettings, delay_seconds
from appliance.kernel.threads import yield_to_loop
from appliance.mesh.canonical import NotCanonical, canonical
from appliance.mesh.instance import MemberInstance
from appliance.mesh.negotiation import NAMES, POLICY
from appliance.mesh.push import Push
from appliance.mesh.signing import Signer, hello_text
from appliance.sdk.discovery import Endpoint
from appliance.sdk.http import json_object
from appliance.sdk.websocket import SocketBroken, SocketRefused, WebSocket

PATH = "/broker/v1/link"
ELSEWHERE = "MEMBER_RUNS_ELSEWHERE"
COPIES = {4003: "replaced_by_newer_connection", 4004: "member_already_connected", ELSEWHERE: ""}
"""Codes of a connection that another one with the same key has ended, and their reasons."""

SLOW_FAILURES = 100  # count as so many failures: the longest backoff
TEXT_BYTES_MAX = 256 * 1024  # one message with its meta
TEXT_MAX = 500  # characters of a broker's text that is logged and stored
REVOKED, ROTATED = "member_revoked", "member_keypair_rotated"
EPOCH_CHARACTERS_MAX = 64
LISTEN_SECONDS = 1.0
SKIPPED_FRAMES_MAX = 100  # other frames while one of a certain type is expected
YIELD_FRAMES = 64  # decoded before other greenlets run
FRAME_OVERHEAD_BYTES = 64 * 1024  # size of a push without its text
ESCAPED_BYTES_MAX = 6  # one byte of text takes at most this many in JSON
STATES = ("connecting", "connected", "waiting", "stopped")
HELLO_SECONDS = 10.0  # time that a broker has for hello and negotiation
SILENCE_SECONDS = 75.0  # a link without any frame for this long is closed


class ConnectionStopped(Exception):
    """The connection must not be retried; the text is the reason."""


class BrokerConnection(Loop):
    """The connection for one mesh. The outbox gets what the broker promises about its sends."""

    name = "inbox_link"
    interval_seconds = 0.005
    push_max = 200  # messages stored in one transaction
    retry = RetrySettings()  # before reconnecting

    def __init__(
        self,
        endpoint: BrokerEndpoint,
        inbox: Inbox,
        signer: Signer,
        outbox: OutboxStatus,
        instance: MemberInstance,
        clock: Clock,
        log: Log,
        dial: Callable[..., WebSocket] = WebSocket,
    ) -> None:
        super().__init__(clock, log)
        self.mesh = endpoint.mesh
        self.state, self.reason, self.since_ms = "waiting", "not attempted yet", clock.now_ms()
        self.features: dict[str, dict[str, Any]] = {}
        self.broker_version: str | None = None
        self.member_name: str | None = None
        self._endpoint = endpoint
        self._inbox = inbox
        self._signer = signer
        self._outbox = outbox
        self._instance = instance
        self._dial = dial
        self._link: WebSocket | None = None
        self._failures = 0
        self._next_attempt = float("-inf")
        self._buffered: deque[bytes] = deque()
        self._refused_pushes = 0
        self._logged_reason = ""
        self._member = ""  # the key of the last hello

    @property
    def connected(self) -> bool:
        return self.state == "connected"

    def to_wire(self) -> wire.LinkState:
        return wire.LinkState(
            self.mesh, self.state, self.reason, iso(self.since_ms), sorted(self.features)
        )

    def send(self, frame: dict[str, Any]) -> None:
        """Send a frame if connected. The status is sent again after each hello."""
        if self.connected and self._link is not None:
            with suppress(Unavailable):  # the next round handles it
                self._link.send(msgspec.json.encode(frame))

    def stop(self, timeout_seconds: float = 0.5) -> None:
        super().stop(timeout_seconds)
        self._close()

    def run_once(self, now_ms: int) -> dict[str, int]:
        """Connect if it is time, or handle received frames. A broker's faults do not raise."""
        counts = {"received": 0}
        if self.reason in (REVOKED, ROTATED) and self._member != self._signer.public_hex:
            self._set_state("waiting", "the member key has changed")
        left = self._next_attempt - self.clock.monotonic()
        if self.state == "stopped" or left > 0:
            self._stop.wait(
                LISTEN_SECONDS if self.state == "stopped" else min(LISTEN_SECONDS, left)
            )
            return counts
        try:
            if self._link is None:
                self._connect()
            counts["received"] = self._listen()
        except ConnectionStopped as stop:
            self._stop_for_good(str(stop))
        except SocketBroken as error:
            self._lost(error.details.get("code"), error.message)
        except Unauthenticated as error:
            if error.message == REVOKED:
                self._stop_for_good(REVOKED)
            else:
                self._wait("refused", error.message)
        except (Unavailable, SocketRefused) as error:
            self._wait("refused" if isinstance(error, SocketRefused) else "lost", error.message)
        return counts

    # -- connecting -------------------------------------------------------------------------

    def _connect(self) -> None:
        self._set_state("connecting", "")
        frame_bytes_max = ESCAPED_BYTES_MAX * TEXT_BYTES_MAX + FRAME_OVERHEAD_BYTES
        endpoint = self._endpoint
        self._link = self._dial(endpoint_of(endpoint.url), PATH, endpoint.ca_file, frame_bytes_max)
        ack = self._authenticate()
        self.broker_version, self.member_name = _text(ack, "broker_version"), _text(ack, "name")
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
        try:
            self._outbox.set_dedupe_retention(self.mesh, agreed.retention_days)
        except ApplianceError as error:
            raise ConnectionStopped(error.message) from None
        self.features = agreed.features
        self._failures, self._logged_reason = 0, ""
        self._inbox.note_accepted(self.mesh)
        if epoch := _text(ack, "epoch"):
            self._outbox.set_epoch(self.mesh, epoch[:EPOCH_CHARACTERS_MAX])
        self._set_state("connected", "")
        self._inbox.announce("daemon_reconnect", self.mesh)
        self._send(type="status", status=self._inbox.profile(self.mesh).status)

    def _authenticate(self) -> dict[str, Any]:
        """Returns the broker's hello_ack, after signing its id and challenge if required."""
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
        """The next frame of one of these types. Frames behind it stay buffered."""
        deadline = self.clock.monotonic() + HELLO_SECONDS
        assert self._link is not None
        frames = 0
        while self.clock.monotonic() < deadline:
            while self._buffered:
                frames += 1
                if frames > SKIPPED_FRAMES_MAX:
                    raise SocketBroken(f"the broker sent other frames instead of {kinds[0]}")
                frame = json_object(self._buffered.popleft())
                if frame.get("type") in kinds:
                    return frame
                if frame.get("type") == "error":
                    self._raise_refusal(frame)
            self._buffered.extend(self._link.receive(LISTEN_SECONDS))
        raise SocketBroken(f"the broker did not send {kinds[0]} within {HELLO_SECONDS:g} s")

    def _raise_refusal(self, frame: dict[str, Any]) -> None:
        code, details = str(frame.get("code")), frame.get("details")
        if code == "MEMBER_REVOKED":
            rotated = isinstance(details, dict) and bool(details.get("successor"))
            raise ConnectionStopped(ROTATED if rotated else REVOKED)
        if code == ELSEWHERE and isinstance(details, dict):
            self._note_copy(details)
            raise SocketBroken(str(frame.get("error"))[:TEXT_MAX], details={"code": ELSEWHERE})
        raise SocketRefused(f"the broker refused the connection: {code[:60]}")

    # -- connected ---------------------------------------------------------------------------

    def _listen(self) -> int:
        """Store received pushes, then ack them, in this order."""
        assert self._link is not None
        messages = list(self._buffered) or self._link.receive(LISTEN_SECONDS)
        self._buffered.clear()
        if not messages:
            if self.clock.monotonic() - self._link.received_at > SILENCE_SECONDS:
                raise SocketBroken("the broker is silent")
            return 0
        pushes = []
        for count, message in enumerate(messages, 1):
            if (push := self._on_frame(message)) is not None:
                pushes.append(push)
            if count % YIELD_FRAMES == 0:
                yield_to_loop()
        limit = self.push_max
        for start in range(0, len(pushes), limit):
            piece = pushes[start : start + limit]
            self._inbox.receive_many(piece, "link")
            self._send(type="client_ack", message_ids=[push.message_id for push in piece])
        return len(pushes)

    def _on_frame(self, message: bytes) -> Push | None:
        frame = json_object(message)
        kind = frame.pop("type", None)
        if kind == "push":
            return self._check(frame)
        if kind == "event":
            self._event(frame)
        elif kind == "error":
            self.log.warning(
                "the broker refused a frame", mesh=self.mesh, code=str(frame.get("code"))[:60]
            )
        elif kind is None:
            metrics.invalid.labels("frame").inc()
        return None

    def _check(self, frame: dict[str, Any]) -> Push | None:
        """A valid push, or None. An invalid push is not acked, so the broker keeps it."""
        try:
            push = msgspec.convert(frame, wire.ReceivedPush)
            texts = f"{push.body}{push.sender_name}{push.topic}{push.destination_ref}"
            # The frame is not measured: it may take six bytes for one, and a text that the broker
            # accepted would be refused here.
            size = len(push.body.encode()) + len(canonical(push.meta) if push.meta else b"")
            is_text = b"\0" not in texts.encode()
        except (msgspec.ValidationError, NotCanonical, UnicodeEncodeError) as error:
            self._refuse("push", _field(str(error)))
            return None
        if push.mesh != self.mesh:
            self._refuse("mesh", "mesh")
        elif not is_text:  # SQLite ends a text at NUL
            self._refuse("push", "text")
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

    def _event(self, frame: dict[str, Any]) -> None:
        name, member = frame.get("event"), frame.get("member")
        if name in ("peer_join", "peer_leave") and isinstance(member, str):
            self._inbox.announce(name, self.mesh, pubkey=member[:64])
        if member != self._member:
            return
        if name == REVOKED:
            raise ConnectionStopped(REVOKED)
        if name == "member_renamed":
            self.member_name = _text(frame, "name") or self.member_name
        if name == "member_runs_elsewhere":
            self._note_copy(frame)

    def _note_copy(self, named: dict[str, Any]) -> None:
        running_on, refused = (
            str(named.get(name))[:TEXT_MAX] for name in ("running_on", "refused")
        )
        self._inbox.note_copy(self.mesh, running_on, refused)

    # -- disconnected ------------------------------------------------------------------------

    def _lost(self, code: Any, message: str) -> None:
        if code in NAMES:
            self._report_negotiation(message, code, {})
            self._stop_for_good(NAMES[code])
        elif code in COPIES:
            # Another process uses our key, or an old connection is still open: reconnect slowly.
            self.log.warning(
                "another connection uses the key of this member", mesh=self.mesh, code=code
            )
            self._failures += SLOW_FAILURES
            self._wait("replaced", COPIES[code] or message)
        else:
            self._wait("lost", message)

    def _wait(self, cause: str, message: str) -> None:
        delay = delay_seconds(self.retry, self._failures + 1, random.random())
        self._failures += 1
        self._next_attempt = self.clock.monotonic() + delay
        if self.connected or message != self._logged_reason:  # once per reason, not per attempt
            self._logged_reason = message
            self.log.info("not connected to the broker", mesh=self.mesh, why=cause, reason=message)
        self._disconnect("waiting", cause, message)

    def _stop_for_good(self, reason: str) -> None:
        """Stop until the next start or, after a revocation, until the key is replaced."""
        if reason == REVOKED:
            self._inbox.note_revoked(self.mesh, self._member)
        self.log.error("the connection to the broker is stopped", mesh=self.mesh, reason=reason)
        self._disconnect("stopped", "stopped", reason)

    def _disconnect(self, state: str, cause: str, reason: str) -> None:
        was_up = self.connected
        self._close()
        metrics.reconnects.labels(cause).inc()
        self._set_state(state, reason)
        if was_up:
            shown = reason if state == "stopped" else cause
            self._inbox.announce("daemon_disconnect", self.mesh, reason=shown)

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
        self.features = {}
        self._buffered.clear()
        if link is not None:
            link.close()

    def _set_state(self, state: str, reason: str) -> None:
        if state != self.state:
            self.since_ms = self.clock.now_ms()
        self.state, self.reason = state, reason

    def _send(self, **frame: Any) -> None:
        assert self._link is not None
        self._link.send(msgspec.json.encode(frame))


def endpoint_of(url: str) -> Endpoint:
    url_parts = urlsplit(url)
    secure = url_parts.scheme == "https"
    port = url_parts.port or (443 if secure else 80)
    return Endpoint(url_parts.hostname or "", port, secure, url_parts.path.rstrip("/"))


def _text(frame: dict[str, Any], name: str) -> str | None:
    value = frame.get(name)
    return value if isinstance(value, str) else None


def _field(problem: str) -> str:
    """The path of the invalid field, without its value."""
    return problem.rpartition("at `")[2].rstrip("`")[:60]


def _short(value: Any) -> str:
    return msgspec.json.encode(value)[:4000].decode("utf-8", "replace")
