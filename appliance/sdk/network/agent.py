"""Implements a network agent, for programs to import.

    agent = NetworkAgent("anna.agent", on_message=handle)
    agent.start()                                  # heartbeats, and messages that wait
    agent.send("bert", {"text": "The build is green."})

The agent's folder is made by `agentlip network init`, or by `AgentFolder.create`. Messages come in
through `endpoint.py`.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from appliance.kernel.clock import Clock, SystemClock
from appliance.kernel.errors import ApplianceError, Invalid
from appliance.network.broadcast import SignedBroadcast, posted_broadcast
from appliance.network.direct import announce
from appliance.network.encoding import SKEW_MS, of_timestamp
from appliance.network.envelope import (
    FORMER_VERSION,
    TYPES,
    VERSION,
    MalformedEnvelope,
    OpenedMessage,
)
from appliance.network.keys import AgentKey, AgentPublicKey
from appliance.network.names import check_agent_name
from appliance.network.safety import fingerprint
from appliance.sdk.closing import Closing
from appliance.sdk.network.admin import RelayAdmin
from appliance.sdk.network.broadcasts import (
    KeptBroadcast,
    is_known,
    list_broadcasts,
    poll_broadcasts,
)
from appliance.sdk.network.contact_verbs import ContactVerbs
from appliance.sdk.network.folder import AgentFolder
from appliance.sdk.network.former_inbox import VERSION_1, poll_former_inbox
from appliance.sdk.network.group_logs import GroupLogs, poll_groups
from appliance.sdk.network.group_verbs import GroupVerbs
from appliance.sdk.network.groups import Groups, NotInGroup
from appliance.sdk.network.incoming import IncomingMessages, StoredMessage
from appliance.sdk.network.key_log import KeyLog, KeyLogRefused
from appliance.sdk.network.key_verbs import KeyVerbs
from appliance.sdk.network.outgoing import (
    EXPIRY_MS,
    LEASE_MS,
    ClaimedMessage,
    NetworkQueueFull,
    OutgoingMessages,
    SendAttempt,
    SendReport,
)
from appliance.sdk.network.peers import (
    ContactsNotCurrent,
    NotAContact,
    Peers,
)
from appliance.sdk.network.pins import KeyPin, KeyPins
from appliance.sdk.network.post import HANDSHAKE_MS, Post, post_envelope, rules_of
from appliance.sdk.network.presences import AgentPresence, Presences
from appliance.sdk.network.relay_client import is_final
from appliance.sdk.network.requests import ContactRequests
from appliance.sdk.network.restored import RESTORED
from appliance.sdk.network.state import AgentState
from appliance.sdk.plain_handler import require_done, require_plain

HEARTBEAT_SECONDS, HEARTBEATS = 300.0, (60.0, 1800.0)  # usual, and shortest and longest
RETRY_SECONDS = 30.0  # after a heartbeat that failed
WAKE_SECONDS = 10.0  # between two reads that posted broadcasts cause
DOUBT_SECONDS = 60.0  # between two reads that posts by unknown admins cause
TICK_SECONDS = 1.0
PAGE, PAGES_MAX = 200, 20
FINAL = frozenset({400, 405, 410, 413, 415, 422})  # the recipient refuses the message for good


class NetworkEvent(Struct, frozen=True):
    """`agent`: the other one. The kinds and their details: docs/reference/network.md."""

    kind: str
    agent: str
    details: dict[str, Any]


class NetworkAgent(ContactVerbs, GroupVerbs, KeyVerbs, Closing):
    """Safe for many threads. `problem`: why the last heartbeat failed. `unreachable`: why contacts
    did not respond to the last attempt, by name. `changed_keys`: contacts with a changed key, also
    if another process saw it. `key_log_problem`: why the relay's key log was refused last."""

    def __init__(
        self,
        folder: Path | str,
        *,
        on_message: Callable[[OpenedMessage], object] | None = None,
        on_event: Callable[[NetworkEvent], object] = lambda _: None,
        auto_approve: bool = False,
        receipts: bool = False,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        post: Post | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Open the agent's folder.

        on_message    gets each message once; an exception makes its sender try again. Without it,
                      messages are kept for `messages`
        auto_approve  accept every contact request, without a person
        receipts      confirm to senders that a message was handled
        """
        if not HEARTBEATS[0] <= heartbeat_seconds <= HEARTBEATS[1]:
            raise Invalid("heartbeat_seconds must be from 60 to 1800")
        self._on_message = require_plain(on_message)
        self._on_event = require_plain(on_event)
        self.folder = AgentFolder(Path(folder))
        self.config = self.folder.config()
        self.name = self.config.name
        self._clock = clock or SystemClock()
        self._auto_approve, self._receipts = auto_approve, receipts
        self._heartbeat_seconds = heartbeat_seconds
        self._post = post or partial(post_envelope, rules=rules_of(self.config))
        self._closed = threading.Event()
        self.relay = self._client(self.name, self.folder.key())
        self._unsigned = self._client()
        self.state = AgentState(self.folder.path / "state.sqlite3")
        self._restored_ms = int(self.state.cursor(RESTORED) or 0)
        self._pins = KeyPins(self.state)
        self.outgoing = OutgoingMessages(self.state)
        self._incoming = IncomingMessages(self.state)
        self.requests = ContactRequests(self.state)
        self.key_log = KeyLog(self.relay, self.state, self._note_key_log)
        self.peers = Peers(
            self.relay, self._pins, self.folder.path / "cache.json", self._clock, self._note_pin,
            self._note_admin, self._other_keys, self.key_log, loopback=self.config.loopback,
        )  # fmt: skip
        self.group_logs = GroupLogs(self.relay, self.peers, self.state)
        self.groups = Groups(self.relay, self.group_logs, self._clock)
        self.problem: str | None = None
        self.changed_keys, self.key_log_problem, self._failing = 0, "", ""
        self._recovering: frozenset[str] = frozenset()
        self._presences = Presences(self.relay, self._clock, 2 * heartbeat_seconds)
        self.unreachable: dict[str, str] = {}
        self._elsewhere: set[str] = set()  # contacts that are not in this LAN
        self._next_poll = self._next_wake = self._next_doubt = float("-inf")
        self._is_woken = False  # a relay has posted a broadcast that is not read yet
        self._has_former_inbox = True  # until the relay refuses
        self._thread: threading.Thread | None = None

        if self.config.plain_http:
            self._emit("plain-http", self.name, relay=self.config.relay)

    # -- registration --------------------------------------------------------------------------

    def request_code(self, email: str) -> None:
        """Have the relay send a code to the owner. Only this agent's key can register with that
        code."""
        body = {"agentName": self.name, "email": email, "publicKey": self.public_key}
        self._unsigned.request("POST", "/verify/send", body)

    def register(self, email: str, code: str) -> str:
        """Confirm the code and register. The agent's status; an admin has to approve it."""
        self._unsigned.request("POST", "/verify/confirm", {"agentName": self.name, "code": code})
        body = {
            "name": self.name, "publicKey": self.public_key, "ownerEmail": email,
            "endpoint": self.config.endpoint, "version": VERSION,
        }  # fmt: skip
        return str(self._unsigned.request("POST", "/registry/agents", body)["agent"]["status"])

    def as_admin(self, key: AgentKey | str) -> RelayAdmin:
        """Act as a relay admin with this agent's name. `key`: the admin key, or its PKCS #8 text.
        Raises BadKey."""
        admin_key = AgentKey.of(key) if isinstance(key, str) else key
        return RelayAdmin(self._client(self.name, admin_key), admin_key, self._clock)

    # -- contacts, with `ContactVerbs` -----------------------------------------------------------

    def presence(self, name: str) -> AgentPresence:
        """Return the presence, unknown if the relay can't be read."""
        return self._presences.read(check_agent_name(name))

    def _note_pin(self, before: KeyPin | None, after: KeyPin) -> None:
        kind = "key-changed" if after.offered else "key-rotated" if before else "key-pinned"
        if before is not None and before.key == after.key and after.offered is None:
            return  # the relay shows the pinned key again
        shown = fingerprint(AgentPublicKey.of(after.offered or after.key))
        self._emit(kind, after.agent, fingerprint=shown)

    def _note_admin(self, name: str, key: str) -> None:
        self._emit("admin-changed", name, fingerprint=fingerprint(AgentPublicKey.of(key)))

    def _note_key_log(self, problem: str) -> None:
        self._emit("key-log-refused", self.name, reason=problem)

    def _note_recoveries(self, *, is_own: bool) -> None:
        """Report agents whose key is about to be replaced by mail. `is_own`: this agent's."""
        rows = self.peers.contacts.values()
        names = {row.agent for row in rows if row.recovery_in_progress}
        recovering = frozenset(names | {self.name} if is_own else names)
        for name in sorted(recovering - self._recovering):
            self._emit("recovery-begun", name)
        self._recovering = recovering

    # -- sending -------------------------------------------------------------------------------

    def send(self, name: str, payload: dict[str, Any]) -> SendReport:
        """Send a message: delivered now, or pending for up to one hour. Raises NotAContact,
        KeyChanged, NetworkQueueFull, NetworkMessageTooLarge."""
        self.peers.check(name)
        now_ms = self._clock.now_ms()
        message_id = self.outgoing.add(name, payload, "direct", now_ms, LEASE_MS)
        return self._deliver(ClaimedMessage(self.outgoing.report(message_id), payload))

    def report(self, message_id: str) -> SendReport:
        """Report every attempt to deliver a message. Raises NoSuchReport."""
        return self.outgoing.report(message_id)

    def reports(self) -> list[SendReport]:
        """Return reports, newest first."""
        return self.outgoing.reports()

    def _deliver(self, claimed: ClaimedMessage) -> SendReport:
        report, attempt = claimed.report, None
        if self._clock.now_ms() < report.created_ms + EXPIRY_MS:
            presence = self._presences.known(report.recipient)
            if not presence.is_useless(report):
                message_id = report.shared_id or report.message_id
                attempt = self.attempt(
                    report.recipient, claimed.payload, message_id, report.type, presence,
                    report.group_id,
                )  # fmt: skip
        report = self.outgoing.record(report, attempt, self._clock.now_ms())
        if attempt is not None or report.status != "pending":
            self._emit(
                "status", report.recipient, messageId=report.message_id, status=report.status,
                attempts=len(report.attempts),
            )  # fmt: skip
        return report

    def attempt(
        self,
        name: str,
        payload: dict[str, Any],
        message_id: str,
        kind: TYPES = "direct",
        presence: AgentPresence | None = None,
        group_id: str | None = None,
    ) -> SendAttempt:
        """Try once to deliver a message, for callers with their own queue."""
        presence = presence or self._presences.known(name)
        endpoint, started = presence.endpoint, self._clock.monotonic()
        status, problem, final, again, tls_ms = None, None, False, None, None
        if presence.refusal is not None:
            endpoint, problem, final = None, f"the relay refused: {presence.refusal}", True
        elif presence.online is False:
            problem = "the recipient is offline"
        else:
            try:
                self.relay.key = self.folder.key()  # another process may have replaced it
                if group_id is not None:
                    self.groups.check_recipient(group_id, name, self.peers.contacts)
                endpoint, body = self.peers.seal(
                    name, payload, message_id, kind, endpoint, group_id
                )
                HANDSHAKE_MS.set(None)
                status, again, endpoint = self._post_nearest(name, endpoint, body)
                tls_ms = HANDSHAKE_MS.get()
                self.unreachable.pop(name, None)
            except (NotAContact, NotInGroup, MalformedEnvelope) as error:
                problem, final = error.message, True
            except ApplianceError as error:
                problem, final = error.message, is_final(error)
            except OSError as error:
                problem = f"the connection failed: {str(error) or type(error).__name__}"
                self.unreachable[name] = problem
                self._presences.online.pop(name, None)  # may have another endpoint
        if status is not None and not 200 <= status < 300:
            may_end = abs(self.relay.skew_ms or 0) > SKEW_MS or self._has_former_key()
            problem = f"the recipient responded with {status}"
            final = status in FINAL and again is None and not may_end
        milliseconds = round((self._clock.monotonic() - started) * 1000)
        return SendAttempt(
            self._clock.now_ms(), presence.state, presence.last_seen, endpoint, status,
            milliseconds, problem, final, tls_ms,
        )  # fmt: skip

    def _post_nearest(self, name: str, endpoint: str, body: bytes) -> tuple[int, object, str]:
        """Post by the contact's addresses in the LAN, then by the public one. Return status,
        Retry-After and the way. Addresses that don't respond are not tried before the next
        heartbeat."""
        if self.config.lan and name not in self._elsewhere:
            for address in self.peers.direct_addresses(name):
                with suppress(OSError):
                    return *self._post(endpoint, body, address), f"{endpoint} by {address}"
            self._elsewhere.add(name)
        return *self._post(endpoint, body), endpoint

    # -- receiving -----------------------------------------------------------------------------

    def begin_receiving(self) -> None:
        """Have messages that a killed process was handling handed over again. Only the process that
        receives for this agent calls this, before the first `receive`."""
        self._incoming.release_all()

    def receive(self, body: bytes) -> OpenedMessage | None:
        """Verify an envelope and hand the message over. None: handed over before, or a broadcast,
        which the next round reads from the relay.

        Raises BroadcastRefused, EnvelopeRefused, ContactsNotCurrent, MessageBeingHandled, and the
        handler's errors.
        """
        broadcast = posted_broadcast(body)
        if broadcast is not None:
            self._note_posted(broadcast)
            return None
        message = self.peers.open(body)
        if of_timestamp(message.timestamp) <= self._restored_ms:
            raise ContactsNotCurrent("the recipient was restored since this message was sealed")
        if message.group_id is not None:
            self.groups.check_sender(message.group_id, message.sender)
        return self._hand_over(message)

    def _note_posted(self, broadcast: SignedBroadcast) -> None:
        """Have a posted broadcast read from the relay. An unknown name may be a new admin's, so a
        refused post by such a name causes a read, too, now and then."""
        admins, now = self.peers.admin_keys(), self._clock.monotonic()
        if broadcast.sender not in admins and now >= self._next_doubt:
            self._next_doubt = now + DOUBT_SECONDS
            self._is_woken = True
        self._is_woken |= not is_known(self.state, admins, broadcast)

    def _hand_over(self, message: OpenedMessage) -> OpenedMessage | None:
        """Hand the message over once. None: handed over before."""
        now_ms = self._clock.now_ms()
        if not self._incoming.claim(message, now_ms):
            return None
        is_receipt = message.type == "receipt"
        try:
            if is_receipt:
                self._note_receipt(message, now_ms)
            elif self._on_message is not None:
                require_done(self._on_message(message))
        except BaseException:
            self._incoming.release(message)
            raise
        keep = self._on_message is None and not is_receipt
        self._incoming.finish(message, now_ms, keep=keep)
        if self._receipts and not is_receipt and message.version != VERSION_1:
            self._send_receipt(message, now_ms)
        return message

    def messages(self, after: int = 0, limit: int = 100) -> list[StoredMessage]:
        """Return messages received without `on_message`, oldest first. `after` is a message's
        `number`."""
        return self._incoming.messages(after, limit)

    def _note_receipt(self, message: OpenedMessage, now_ms: int) -> None:
        message_id = str(message.payload.get("messageId"))
        if self.outgoing.note_receipt(message_id, message.sender, now_ms):
            self._emit("receipt", message.sender, messageId=message_id)

    def _send_receipt(self, message: OpenedMessage, now_ms: int) -> None:
        """Queue a receipt, which the next `run_once` round delivers. Agents that know only 2.0
        have no receipts."""
        contact = self.peers.contacts.get(message.sender)
        if contact is not None and contact.newest_version() != FORMER_VERSION:
            payload = {"messageId": message.message_id, "status": "delivered"}
            with suppress(NetworkQueueFull):
                self.outgoing.add(message.sender, payload, "receipt", now_ms)

    # -- in the background ---------------------------------------------------------------------

    def start(self) -> None:
        """Send heartbeats and waiting messages, in a thread, until `close`."""
        self.begin_receiving()
        self._thread = threading.Thread(target=self._run, name="agentlip-network", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the agent; messages that wait stay in its folder."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        self.state.close()

    def run_once(self) -> None:
        """Send a heartbeat if it is time for one, and every message that is due."""
        now = self._clock.monotonic()
        if now >= self._next_poll:
            self._next_poll = now + RETRY_SECONDS
            try:
                self.poll()
            except ApplianceError as error:
                if self._failing != error.code:
                    self._emit("heartbeat-failed", self.name, reason=error.message, code=error.code)
                self._failing, self.problem = error.code, error.message
            else:
                if self._failing:
                    self._emit("heartbeat-restored", self.name)
                self._failing, self.problem = "", None
                self._next_poll = now + self._heartbeat_seconds
        elif self._is_woken and now >= self._next_wake:
            self._next_wake = now + WAKE_SECONDS
            with suppress(ApplianceError):  # read again then, and by the next heartbeat
                self._poll_broadcasts()
        self.changed_keys, self.key_log_problem = self._pins.count_changed(), self.key_log.problem
        while claimed := self.outgoing.claim(self._clock.now_ms()):
            self._deliver(claimed)

    def poll(self) -> None:
        """Send a heartbeat; read contacts, their events, the admins' keys, broadcasts, groups'
        changes, and while the relay serves version 1, the inbox there."""
        self.relay.key = self.folder.key()  # another process may have replaced it
        if not self._has_former_key():
            self.folder.forget_former()
        direct = announce(self.name, self.config.direct, self.folder.key())
        body = {"endpoint": self.config.endpoint, "version": VERSION}
        seen = self.relay.request("PUT", "/presence", body | ({"direct": direct} if direct else {}))
        self._elsewhere.clear()
        try:
            self.peers.refresh()
        except KeyLogRefused:
            self._poll_broadcasts()  # revocations arrive all the same
            raise
        for row in self.peers.contacts.values():
            self._presences.note(row.agent, row)
        self._note_recoveries(is_own=bool(seen.get("recoveryInProgress")))
        self._poll_contact_events()
        self.refresh_requests()
        self._poll_broadcasts()
        poll_groups(self.group_logs, self.groups.forget, self._emit)
        if self._has_former_inbox:
            self._has_former_inbox = poll_former_inbox(
                self.relay, self.peers.contacts, self._hand_over
            )

    def broadcasts(self, before: int = 0, limit: int = 100, kind: str = "") -> list[KeptBroadcast]:
        """Return the verified broadcasts, newest first. `before`: a page's last `number`."""
        return list_broadcasts(self.state, before, limit, kind)

    def _poll_broadcasts(self) -> None:
        self._is_woken, was_woken = False, self._is_woken
        try:
            poll_broadcasts(self.relay, self.state, self.peers, self._emit, self._clock.now_ms())
        except ApplianceError:
            self._is_woken |= was_woken
            raise

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self.run_once()
            except Exception as error:  # also a callback's error: the next round tries again
                self.problem = f"{type(error).__name__}: {error}"
            self._closed.wait(TICK_SECONDS)

    def _poll_contact_events(self) -> None:
        after = int(self.state.cursor("contacts") or 0)
        for _ in range(PAGES_MAX):
            page = self.relay.request("GET", f"/contacts/events?after={after}&limit={PAGE}")
            events = page["events"]
            requests = {}
            if any(event["event"] == "requested" for event in events):
                requests = {row["from"]: row for row in self.pending_requests()}
            for event in events:
                name, kind = str(event["agent"]), event["event"]
                self._emit(f"contact-{kind}", name, **requests.get(name, {}))
                if kind == "requested" and self._auto_approve and name in requests:
                    self._approve(name)
                after = int(event["id"])
            self.state.set_cursor("contacts", str(after))
            if len(events) < PAGE:
                return

    def _approve(self, name: str) -> None:
        if not self.requests.find_blocked([name]):
            self.accept_contact(name)

    def _emit(self, kind: str, agent: str, **details: Any) -> None:
        self._on_event(NetworkEvent(kind, agent, details))
