"""The link to a broker elsewhere: hello, negotiation, pushes stored, then acked. For ever.

    waiting ──pause over──▶ connecting ──negotiated──▶ connected
       ▲                        │                          │
       └──── lost, silent, replaced, refused ◀─────────────┤
                                │                          │
    stopped ◀── 4010, 4011, 4012, revoked ─────────────────┘

A round takes what has come and returns, so a stop waits for no broker.
"""

import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import msgspec

from appliance.inbox import metrics, negotiation, wire
from appliance.inbox.service import Inbox
from appliance.inbox.settings import BrokerPlace
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import ApplianceError, Unauthenticated, Unavailable
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.threads import yield_to_loop
from appliance.mesh.canonical import NotCanonical, canonical
from appliance.mesh.negotiation import NAMES
from appliance.mesh.signing import Signer, hello_text
from appliance.sdk.discovery import Endpoint
from appliance.sdk.websocket import Link, LinkBroken, LinkRefused

PATH = "/broker/v1/link"
REPLACED, CONNECTED = 4003, 4004
REVOKED, ROTATED = "member_revoked", "member_keypair_rotated"
LISTEN_SECONDS = 1.0
EARLY_FRAMES_MAX = 100  # while one certain frame is waited for
TURN_FRAMES = 64  # read before other work of this process has its turn
FRAME_BYTES_BESIDE = 64 * 1024  # of a push, beside its text
ESCAPED = 6  # bytes that one byte of text may take in JSON
STATES = ("connecting", "connected", "waiting", "stopped")


class Stopped(Exception):
    """This link must not come up again by itself; the text says why."""


class Receiver(Loop):
    """One mesh's link. `adopt` hears for how many days the broker knows ids (None: for ever)."""

    name = "inbox_link"
    interval_seconds = 0.005

    def __init__(
        self,
        place: BrokerPlace,
        inbox: Inbox,
        signer: Signer,
        clock: Clock,
        log: Log,
        adopt: Callable[[str, int | None], None] = lambda _mesh, _days: None,
        dial: Callable[..., Link] = Link,
    ) -> None:
        super().__init__(clock, log)
        self.mesh = place.mesh
        self.state, self.reason, self.since_ms = "waiting", "not tried yet", clock.now_ms()
        self.features: dict[str, dict[str, Any]] = {}
        self.broker_version: str | None = None
        self.member_name: str | None = None
        self._place = place
        self._inbox = inbox
        self._signer = signer
        self._adopt = adopt
        self._dial = dial
        self._link: Link | None = None
        self._failures = 0
        self._next_try = float("-inf")
        self._heard = 0.0
        self._early: deque[bytes] = deque()
        self._refused_told = 0
        self._told = ""
        self._revoked_key = ""

    @property
    def connected(self) -> bool:
        return self.state == "connected"

    def shown(self) -> wire.LinkState:
        return wire.LinkState(
            self.mesh, self.state, self.reason, iso(self.since_ms), sorted(self.features)
        )

    def say(self, frame: dict[str, Any]) -> None:
        """To the broker, while the link is up; it is said again after each hello."""
        if self.connected and self._link is not None:
            with suppress(Unavailable):  # the next round notices
                self._link.send(msgspec.json.encode(frame))

    def stop(self, timeout_seconds: float = 0.5) -> None:
        super().stop(timeout_seconds)
        self._hang_up()

    def run_once(self, now_ms: int) -> dict[str, int]:
        """Connects when it is time; else takes what has come. Raises nothing of a broker's."""
        counts = {"received": 0}
        if self.reason in (REVOKED, ROTATED) and self._revoked_key != self._signer.public_hex:
            self._become("waiting", "the key is another one now")
        left = self._next_try - self.clock.monotonic()
        if self.state == "stopped" or left > 0:
            self._stop.wait(
                LISTEN_SECONDS if self.state == "stopped" else min(LISTEN_SECONDS, left)
            )
            return counts
        try:
            if self._link is None:
                self._connect()
            counts["received"] = self._listen()
        except Stopped as stop:
            self._end_for_good(str(stop))
        except LinkBroken as error:
            self._lost(error.details.get("code"), error.message)
        except Unauthenticated as error:
            self._refused("UNAUTHORIZED", error.message)
        except (Unavailable, LinkRefused) as error:
            self._wait("refused" if isinstance(error, LinkRefused) else "lost", error.message)
        return counts

    # -- coming up ---------------------------------------------------------------------------

    def _connect(self) -> None:
        self._become("connecting", "")
        frame_bytes_max = ESCAPED * self._inbox.settings.text_bytes_max + FRAME_BYTES_BESIDE
        place = self._place
        self._link = self._dial(endpoint_of(place.url), PATH, place.ca_file, frame_bytes_max)
        self._heard = self.clock.monotonic()
        ack = self._say_hello()
        version, name = ack.get("broker_version"), ack.get("name")
        self.broker_version = version if isinstance(version, str) else None
        self.member_name = name if isinstance(name, str) else None
        require = list(negotiation.REQUIRED)
        optional = list(negotiation.OPTIONAL)
        self._send(type="negotiate", require=require, optional=optional)
        answer = self._expect("negotiated")
        agreed = negotiation.agree(answer.get("supported"), answer.get("missing_required"))
        if agreed.problem is not None:
            self._tell_negotiation(agreed.problem.reason, agreed.problem.code, answer)
            raise Stopped(agreed.problem.reason)
        for problem in agreed.dropped:
            self.log.warning(
                "feature_optional_param_invalid", mesh=self.mesh, feature=problem.reason
            )
        self._adopt_window(agreed)
        self.features = agreed.features
        self._failures, self._told = 0, ""
        self._inbox.note_accepted(self.mesh)
        self._become("connected", "")
        self._inbox.announce("daemon_reconnect", self.mesh)
        profile = self._inbox.profile(self.mesh)
        if profile.status != "idle":
            self._send(type="status", status=profile.status)

    def _say_hello(self) -> dict[str, Any]:
        """The broker's hello_ack. It asks for a signature over its id and its challenge."""
        member = self._signer.public_hex
        self._send(type="hello", mesh=self.mesh, member=member)
        answer = self._expect("challenge", "hello_ack")
        if answer["type"] == "hello_ack":
            return answer
        broker, nonce = str(answer.get("broker_id")), str(answer.get("nonce"))
        if self._place.broker_id not in (None, broker):
            raise LinkRefused("the broker has another id than the settings name")
        text = hello_text(broker, self.mesh, member, nonce)
        signature = self._signer.sign(text).hex()
        self._send(type="hello", mesh=self.mesh, member=member, nonce=nonce, signature=signature)
        return self._expect("hello_ack")

    def _adopt_window(self, agreed: negotiation.Agreed) -> None:
        try:
            self._adopt(self.mesh, agreed.retention_days)
        except ApplianceError as error:
            raise Stopped(error.message) from None

    def _expect(self, *kinds: str) -> dict[str, Any]:
        """The next frame of these kinds, in time. What came right behind it is kept."""
        deadline = self.clock.monotonic() + self._inbox.settings.hello_seconds
        assert self._link is not None
        frames = 0
        while self.clock.monotonic() < deadline:
            while self._early:
                frames += 1
                if frames > EARLY_FRAMES_MAX:
                    raise LinkBroken(f"the broker sends other frames than {kinds[0]}")
                frame = decoded(self._early.popleft())
                if frame.get("type") in kinds:
                    return frame
                if frame.get("type") == "error":
                    self._heed(frame)
            self._early.extend(self._link.receive(LISTEN_SECONDS))
        raise LinkBroken(f"the broker did not send {kinds[0]} in time")

    def _heed(self, frame: dict[str, Any]) -> None:
        code, details = str(frame.get("code")), frame.get("details")
        if code == "MEMBER_REVOKED":
            rotated = isinstance(details, dict) and bool(details.get("successor"))
            raise Stopped(ROTATED if rotated else REVOKED)
        raise LinkRefused(f"the broker refused the link: {code[:60]}")

    # -- being up ----------------------------------------------------------------------------

    def _listen(self) -> int:
        """Stores what came, then acks it: in this order, whatever happens between."""
        assert self._link is not None
        messages = list(self._early) or self._link.receive(LISTEN_SECONDS)
        self._early.clear()
        now = self.clock.monotonic()
        if not messages:
            if now - max(self._heard, self._link.heard) > self._inbox.settings.silence_seconds:
                raise LinkBroken("the broker is silent", details={"code": "silent"})
            return 0
        self._heard = now
        pushes = []
        for count, message in enumerate(messages, 1):
            if (push := self._hear(message)) is not None:
                pushes.append(push)
            if count % TURN_FRAMES == 0:
                yield_to_loop()
        most = self._inbox.settings.push_max
        for start in range(0, len(pushes), most):
            piece = pushes[start : start + most]
            self._inbox.receive_many(piece, "link")
            self._send(type="client_ack", message_ids=[push.message_id for push in piece])
        return len(pushes)

    def _hear(self, message: bytes) -> wire.Push | None:
        frame = decoded(message)
        kind = frame.pop("type", None)
        if kind == "push":
            return self._checked(frame)
        if kind == "event":
            self._event(frame)
        elif kind == "error":
            self.log.warning(
                "the broker refused a frame", mesh=self.mesh, code=str(frame.get("code"))[:60]
            )
        elif kind is None:
            metrics.invalid.labels("frame").inc()
        return None

    def _checked(self, frame: dict[str, Any]) -> wire.Push | None:
        """A push that may be stored. What is refused is not acked: the broker keeps it."""
        try:
            push = msgspec.convert(frame, wire.Push)
        except msgspec.ValidationError as error:
            self._refuse("push", _field(str(error)))
            return None
        if push.mesh != self.mesh:
            self._refuse("mesh", "mesh")
        elif not _is_text(push.body, push.sender_name, push.topic or "", push.destination_ref):
            self._refuse("push", "text")
        elif (size := _size(push)) is None:
            self._refuse("push", "meta")
        elif size > self._inbox.settings.text_bytes_max:
            self._refuse("size", "body")
        else:
            return push
        return None

    def _refuse(self, what: str, field: str) -> None:
        metrics.invalid.labels(what).inc()
        self._refused_told += 1
        if self._refused_told & (self._refused_told - 1) == 0:  # 1st, 2nd, 4th, 8th, …
            self.log.warning(
                "a push was refused; the broker keeps it", mesh=self.mesh, what=what, field=field
            )

    def _event(self, frame: dict[str, Any]) -> None:
        name, member = str(frame.get("event")), frame.get("member")
        if name == REVOKED and member == self._signer.public_hex:
            raise Stopped(REVOKED)
        renamed = frame.get("name")
        if name == "member_renamed" and member == self._signer.public_hex:
            self.member_name = renamed if isinstance(renamed, str) else self.member_name
        if name in ("peer_join", "peer_leave") and isinstance(member, str):
            self._inbox.announce(name, self.mesh, pubkey=member[:64])

    # -- going down --------------------------------------------------------------------------

    def _lost(self, code: Any, message: str) -> None:
        if code in NAMES:
            self._tell_negotiation(message, code, {})
            self._end_for_good(NAMES[code])
        elif code in (REPLACED, CONNECTED):
            # Somebody else has our key, or a former self of ours is still there: no race.
            self.log.warning("this member is connected from elsewhere", mesh=self.mesh, code=code)
            self._failures += 100
            self._wait("replaced", "replaced_by_newer_connection" if code == REPLACED
                       else "member_already_connected")  # fmt: skip
        else:
            self._wait("silent" if code == "silent" else "lost", message)

    def _refused(self, code: str, message: str) -> None:
        if message == REVOKED:
            self._end_for_good(REVOKED)
        elif message == ROTATED:
            self._wait("refused", message)
        else:
            self._failures += 3
            self._wait("refused", message or code)

    def _wait(self, why: str, message: str) -> None:
        was_up = self.connected
        self._hang_up()
        metrics.reconnects.labels(why).inc()
        settings = self._inbox.settings
        pause_ms = min(
            settings.backoff_first_ms * settings.backoff_factor ** min(self._failures, 64),
            settings.backoff_max_ms,
        )
        pause_ms *= 1 + settings.backoff_jitter * (2 * random.random() - 1)
        self._failures += 1
        self._next_try = self.clock.monotonic() + pause_ms / 1000
        if was_up or message != self._told:  # once for each trouble, not for each attempt
            self._told = message
            self.log.info("no link to the broker", mesh=self.mesh, why=why, reason=message)
        self._become("waiting", message)
        if was_up:
            self._inbox.announce("daemon_disconnect", self.mesh, reason=why)

    def _end_for_good(self, reason: str) -> None:
        """Until the next start; or, for a revoked key, until we have another."""
        was_up = self.connected
        self._revoked_key = self._signer.public_hex
        if reason == REVOKED:
            self._inbox.note_revoked(self.mesh, self._revoked_key)
        self._hang_up()
        metrics.reconnects.labels("stopped").inc()
        self.log.error("the link to the broker is given up", mesh=self.mesh, reason=reason)
        self._become("stopped", reason)
        if was_up:
            self._inbox.announce("daemon_disconnect", self.mesh, reason=reason)

    def _tell_negotiation(self, reason: str, code: int, answer: dict[str, Any]) -> None:
        """All of it, once: whoever reads the log needs no second source."""
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

    def _hang_up(self) -> None:
        link, self._link = self._link, None
        self.features = {}
        self._early.clear()
        if link is not None:
            link.close()

    def _become(self, state: str, reason: str) -> None:
        if state != self.state:
            self.since_ms = self.clock.now_ms()
        self.state, self.reason = state, reason

    def _send(self, **frame: Any) -> None:
        assert self._link is not None
        self._link.send(msgspec.json.encode(frame))


def endpoint_of(url: str) -> Endpoint:
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    return Endpoint(parts.hostname or "", port, secure, parts.path.rstrip("/"))


def decoded(message: bytes) -> dict[str, Any]:
    """A frame, or an empty one for what is none."""
    try:
        frame = msgspec.json.decode(message)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return frame if isinstance(frame, dict) else {}


def _size(push: wire.Push) -> int | None:
    """Bytes of the text and its meta; None for a meta that can't be stored. Not of the frame:
    there a character may take six, and a text that its broker has accepted would never arrive."""
    try:
        meta = canonical(push.meta) if push.meta else b""
    except NotCanonical:
        return None
    return len(push.body.encode()) + len(meta)


def _is_text(*texts: str) -> bool:
    """SQLite's text: UTF-8 without NUL."""
    try:
        return not any(b"\0" in text.encode() for text in texts)
    except UnicodeEncodeError:
        return False


def _field(problem: str) -> str:
    """Where something is wrong, without what is there."""
    return problem.rpartition("at `")[2].rstrip("`")[:60]


def _short(value: Any) -> str:
    return msgspec.json.encode(value)[:4000].decode("utf-8", "replace")
