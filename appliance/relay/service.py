"""Implements the relay's verbs. Each change is one transaction; the directory in memory follows."""

import secrets
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import msgspec

from appliance.kernel.batch import Call, CallOutcome
from appliance.kernel.clock import HOUR_MS, Clock, iso
from appliance.kernel.errors import ApplianceError, Exhausted, Unavailable
from appliance.kernel.log import Log
from appliance.kernel.meta import value
from appliance.kernel.store import Store
from appliance.network.broadcast import (
    RELAY_SENDER,
    REVOCATION,
    BroadcastRefused,
    SignedBroadcast,
    signed_ms,
    verify_broadcast,
)
from appliance.network.encoding import SKEW_MS
from appliance.network.key_log import KeyLogEntry, KeyLogHead, entry_digest, sign_head
from appliance.network.keys import AgentPublicKey, recovery_text, rotation_text
from appliance.network.names import check_agent_name
from appliance.network.safety import fingerprint
from appliance.relay import group_writes, key_log, mail, metrics, queries, wire, writes
from appliance.relay.access import RelaySignatures
from appliance.relay.checklist import checklist, is_disposable
from appliance.relay.directory import AgentDirectory
from appliance.relay.limits import RelayLimits
from appliance.relay.rows import AgentRow, ContactRow, KeyLogRow
from appliance.relay.settings import RelaySettings
from appliance.relay.states import ACTIVE
from appliance.web.address import check_url
from appliance.web.limits import network_of

OFFLINE_MS = (600_000, HOUR_MS)  # twice the usual and the longest heartbeat interval
BATCH_MAX = 100  # names in one request for presence
PENDING_LISTED_MAX = 100


class EndpointRules(msgspec.Struct, frozen=True):
    """The endpoints that agents may name: https on public addresses."""

    allow_loopback: bool = False
    allow_private: bool = False
    allow_http: bool = False


class Relay:
    """The process's relay. An operation returns when its effect is durable."""

    def __init__(
        self,
        store: Store,
        code_mail: mail.CodeMail,
        settings: RelaySettings,
        clock: Clock,
        log: Log,
    ) -> None:
        self.store = store
        self.clock = clock
        self.log = log
        self.directory = AgentDirectory()
        self.limits = RelayLimits(clock)
        self.rules = EndpointRules(allow_loopback="loopback-endpoints" in settings.options)
        self.is_private = "private-directory" in settings.options
        self.signatures = RelaySignatures(
            self.directory, self.limits, clock, agent_keys="agent-keys" in settings.options,
            is_private=self.is_private,
        )  # fmt: skip
        self._mail = code_mail
        self._approvals = settings.approvals
        self._offline_ms = OFFLINE_MS["slow-heartbeats" in settings.options]
        self.v1_until_ms = 0

    def open(self, v1_until_ms: int = 0) -> None:
        """Read the directory; call at the start. `v1_until_ms`: when version 1 ends; 0: it is
        not served."""
        self._load()
        self.v1_until_ms = v1_until_ms
        signed_after = self.store.read(value, queries.SIGNED_AFTER)
        used = self.store.read(queries.used_signatures)
        self.signatures.restore(used, int(signed_after or 0))

    def is_v1_gone(self) -> bool:
        """Return whether protocol version 1 has ended, or was never switched on."""
        return self.clock.now_ms() >= self.v1_until_ms

    # -- signed requests -----------------------------------------------------------------

    def write(self, signer: str, *change: Any) -> Any:
        """Store this agent's or admin's pending signatures, and the change (a `writes` verb with
        its arguments), with one commit."""
        used = self.signatures.used
        rows = used.list_unsaved(signer)
        calls: list[Call] = [(change[0], change[1:])] if change else []
        if rows:
            calls = [(writes.use_signatures, (rows,)), *calls]
        outcomes = self.store.write_many(calls) if calls else [CallOutcome()]
        if rows and outcomes[0].error is None:
            used.note_saved(signer, rows)
        return outcomes[-1].unwrap()

    # -- registration --------------------------------------------------------------------

    def send_code(self, command: wire.SendCode, address: str) -> wire.Done:
        """Mail a code. The reply is the same whether or not the name is taken."""
        check_agent_name(command.agent_name)
        email = _check_email(command.email)
        key = None if command.public_key is None else str(AgentPublicKey.of(command.public_key))
        for subject in (
            f"client {network_of(address)}",
            f"mail {email}",
            f"name {command.agent_name}",
        ):
            self.limits.charge("codes", subject)
        self.limits.charge("mails")
        code = f"{secrets.randbelow(1_000_000):06}"
        number = self.store.write(writes.add_code, command.agent_name, email, code, key)
        text = mail.text_of(command.agent_name, code)
        try:
            self._mail.send(f"relay_code_{number}", email, mail.SUBJECT, text)
        except Exhausted as error:
            raise Unavailable("the mail can't be accepted now", hint=error.hint) from None
        metrics.codes.labels("sent").inc()
        self._log("code.sent", command.agent_name, address)
        return wire.Done()

    def confirm_code(self, command: wire.ConfirmCode, address: str) -> wire.Done:
        check_agent_name(command.agent_name)
        self.limits.charge("attempts", network_of(address))
        digits = command.code.isascii() and command.code.isdigit() and len(command.code) == 6
        result: writes.CodeResult = "refused"
        if digits:
            result = self.store.write(writes.confirm_code, command.agent_name, command.code)
        metrics.codes.labels(result).inc()
        self._log(f"code.{result}", command.agent_name, address)
        if result == "refused":
            raise wire.CodeRefused
        return wire.Done()

    def register(self, command: wire.RegisterAgent, address: str) -> wire.AgentChanged:
        check_agent_name(command.name)
        key = str(AgentPublicKey.of(command.public_key))
        email = _check_email(command.owner_email)
        check_url(command.endpoint, self.rules)
        self.limits.charge("registrations", network_of(address))
        command = msgspec.structs.replace(command, public_key=key, owner_email=email)
        self.store.write(writes.register, command, address)
        self._log("agent.registered", command.name, address)
        return self._read_again(command.name)

    def rotate(self, name: str, command: wire.RotateKey, agent: str) -> wire.AgentChanged:
        if name != agent:
            raise wire.NotAnAdmin("an agent can replace only its own key")
        former = self.directory.key(self._agent(name).public_key)
        key = AgentPublicKey.of(command.public_key)
        text = rotation_text(name, former, key)
        if not former.is_signed(text, command.signature) or not key.is_signed(text, command.proof):
            raise wire.WrongSignature("both keys have to sign the rotation")
        self.limits.charge("rotations", name)
        self.write(name, writes.rotate, name, str(former), str(key), command.signature)
        self._log("agent.rotated", name)
        return self._read_again(name)

    def recover(self, name: str, command: wire.RecoverKey, address: str) -> wire.RecoveryBegun:
        """Begin a key recovery by mail, which takes effect after an hour."""
        key = AgentPublicKey.of(command.public_key)
        if not key.is_signed(recovery_text(check_agent_name(name), key), command.proof):
            raise wire.WrongSignature("the new key has to sign the recovery")
        self.limits.charge("registrations", network_of(address))
        due_ms = self.store.write(writes.recover, name, command.owner_email.lower(), str(key))
        self._log("agent.recovery-begun", name, address)
        return wire.RecoveryBegun(iso(due_ms))

    def cancel_recovery(self, name: str, agent: str) -> wire.Done:
        if name != agent:
            raise wire.NotAnAdmin("an agent can cancel only its own recovery")
        self.write(agent, writes.cancel_recovery, agent)
        self._log("agent.recovery-cancelled", name)
        return wire.Done()

    def finish_recoveries(self) -> int:
        """Replace the keys whose hour has passed; return how many."""
        names = self.store.write(writes.finish_recoveries)
        for name in names:
            self._log("agent.recovered", name)
            self._read_again(name)
        return len(names)

    # -- key log ---------------------------------------------------------------------------

    def key_log_head(self) -> KeyLogHead:
        own = self.store.read(queries.relay_key)
        if own is None:
            raise wire.NoKeyLog
        return sign_head(own.key, *self.store.read(key_log.head))

    def key_log(self, query: wire.KeyLogQuery, viewer: str | None) -> list[KeyLogEntry]:
        """Return entries, oldest first; a digest for an agent that the caller may not see."""
        visible = None if not self.is_private else {viewer, *self._contact_names(viewer or "")}
        return [
            _show_entry(row, is_visible=visible is None or row.agent in visible)
            for row in self.store.read(key_log.entries, query.after, query.limit)
        ]

    def _contact_names(self, agent: str) -> set[str]:
        return {name for row in self.store.read(queries.contacts, agent) for name in row[:2]}

    # -- directory and presence ------------------------------------------------------------

    def agents(self, query: wire.PageQuery) -> list[wire.AgentEntry]:
        """Return agents by name. A private directory is not listed."""
        if self.is_private:
            raise wire.DirectoryPrivate
        names = sorted(name for name in self.directory.agents if name > query.after)
        return [self._entry(self.directory.agents[name]) for name in names[: query.limit]]

    def agent(self, name: str, viewer: str | None) -> wire.AgentDetail:
        """Return an agent, never with the owner's mail address."""
        self.check_may_see(name, viewer)
        row = self._agent(name)
        fields = msgspec.structs.asdict(self._entry(row))
        approved_by = row.decided_by if row.status == ACTIVE else None
        return wire.AgentDetail(**fields, approved_by=approved_by)

    def note_seen(self, command: wire.AgentHeartbeat, name: str) -> wire.AgentSeen:
        check_url(command.endpoint, self.rules)
        seen_ms = self.write(name, writes.note_seen, name, command.endpoint, command.version)
        row = self._agent(name)
        self.directory.put(
            row._replace(endpoint=command.endpoint, version=command.version, last_seen_ms=seen_ms)
        )
        self.directory.direct[name] = command.direct
        return wire.AgentSeen(self.store.read(queries.key_changes, [name])[name].is_recovering)

    def presence(self, name: str, viewer: str | None) -> wire.PresenceEntry:
        self.check_may_see(name, viewer)
        if self._agent(name).status != ACTIVE:
            raise wire.NoSuchAgent
        return self._presence(name)

    def presences(self, query: wire.BatchQuery, viewer: str | None) -> list[wire.PresenceEntry]:
        """Return presences. Unknown agents are offline, and so are agents that the caller may
        not see."""
        entries = []
        names = [name for name in query.agents.split(",") if name]
        for name in dict.fromkeys(names[:BATCH_MAX]):
            visible = self._may_see(name, viewer)
            entries.append(
                self._presence(name) if visible else wire.PresenceEntry(name, False, None, None)
            )
        return entries

    # -- contacts --------------------------------------------------------------------------

    def request_contact(self, command: wire.RequestContact, agent: str) -> wire.ContactsRequested:
        if not isinstance(command.to, list):
            self._request_contact(command.to or command.to_agent or "", command.greeting, agent)
            return wire.ContactsRequested(ok=True)
        results = [self._try_request(to, command.greeting, agent) for to in command.to]
        return wire.ContactsRequested(all(row.ok for row in results), results)

    def _try_request(self, to: str, greeting: str | None, agent: str) -> wire.ContactRequested:
        try:
            self._request_contact(to, greeting, agent)
        except ApplianceError as error:
            self.write(agent)
            return wire.ContactRequested(to, ok=False, status=error.status, error=error.message)
        return wire.ContactRequested(to, ok=True, status=201)

    def _request_contact(self, name: str, greeting: str | None, agent: str) -> None:
        to = check_agent_name(name)
        if to == agent:
            raise wire.OwnRequest
        self.limits.charge("contacts", agent)
        try:
            self.write(agent, writes.request_contact, agent, to, greeting)
        except (
            wire.NoSuchAgent, wire.ContactExists, wire.TooManyContacts, wire.RequesterBlocked
        ) as error:  # fmt: skip
            if not self.is_private or error.details:
                raise
        self._log("contact.request", agent, other=to)

    def answer_contact(self, verb: Callable[..., None], other: str, agent: str) -> wire.Done:
        """Answer a contact request by `verb`: accept_contact, deny_contact or remove_contact
        from `writes`."""
        try:
            self.write(agent, verb, agent, other)
        except wire.OwnRequest:
            raise wire.NoSuchContact if self.is_private else wire.OwnRequest from None
        self._log(f"contact.{verb.__name__.partition('_')[0]}", agent, other=other)
        return wire.Done()

    def contacts(self, agent: str) -> list[wire.ContactEntry]:
        rows = self.store.read(queries.contacts, agent)
        others = [row.agent_b if row.agent_a == agent else row.agent_a for row in rows]
        changes = self.store.read(queries.key_changes, others)
        return [
            self._contact(row, self._agent(other), changes[other])
            for row, other in zip(rows, others, strict=True)
        ]

    def pending_contacts(self, agent: str) -> list[wire.PendingContact]:
        entries = []
        for row in self.store.read(queries.incoming, agent):
            asking = self._agent(row.requested_by)
            entries.append(
                wire.PendingContact(
                    asking.name, row.greeting, iso(row.requested_ms), asking.owner_email,
                    asking.public_key,
                )
            )  # fmt: skip
        return entries

    def events(self, query: wire.ContactEventsQuery, agent: str) -> wire.ContactEvents:
        rows = self.store.read(queries.events, agent, query.after, query.limit)
        events = [
            wire.ContactEventEntry(row.id, row.contact, row.event, iso(row.at_ms)) for row in rows
        ]
        return wire.ContactEvents(events, events[-1].id if events else query.after)

    # -- admins ----------------------------------------------------------------------------

    def pending_agents(self, _admin: str = "") -> list[wire.PendingAgent]:
        rows = self.store.read(queries.pending_agents, PENDING_LISTED_MAX)
        return [
            wire.PendingAgent(
                row.name, row.public_key, fingerprint(self.directory.key(row.public_key)),
                row.owner_email, row.endpoint, iso(row.created_ms),
                checklist(row, same_email, same_address),
                [
                    approval.admin
                    for approval in self.store.read(queries.approvals, row.name)
                    if approval.approved_ms is not None and approval.admin in self.directory.admins
                ],
                self._approvals,
            )
            for row, same_email, same_address in rows
        ]  # fmt: skip

    def approve(self, name: str, admin: str) -> wire.AgentChanged:
        """Approve an agent, which becomes active once as many admins approve as the setting
        `approvals`."""
        return self._decide(writes.approve, name, admin, self._approvals)

    def revoke(self, name: str, admin: str) -> wire.AgentChanged:
        """Revoke an agent, which is refused from its next request on, and announce this in a
        broadcast that the relay signs."""
        return self._decide(group_writes.revoke, name, admin, str(uuid4()))

    def admin_keys(self) -> list[wire.AdminKey]:
        """Return the admins' keys, and the relay's own key."""
        keys = [
            wire.AdminKey(row.agent, row.public_key, iso(row.added_ms))
            for row in self.directory.admins.values()
        ]
        own = self.store.read(queries.relay_key)
        if own is not None:
            keys.append(wire.AdminKey(RELAY_SENDER, str(own.key.public), iso(own.added_ms)))
        return keys

    def send_broadcast(self, command: wire.SendBroadcast, admin: str) -> wire.BroadcastSent:
        broadcast = SignedBroadcast(command.type, command.payload, admin, command.signature)
        payload = verify_broadcast(broadcast, self.directory.admin_keys())
        now_ms = self.clock.now_ms()
        if abs(signed_ms(payload, now_ms) - now_ms) > SKEW_MS:
            raise BroadcastRefused("the broadcast was signed more than 5 minutes ago")
        broadcast_id = str(uuid4())
        if broadcast.type == REVOCATION:  # announces and revokes in one transaction
            agent = str(payload.get("agent"))
            self._decide(group_writes.revoke, agent, admin, broadcast_id, broadcast)
        else:
            self.write(admin, writes.add_broadcast, broadcast_id, broadcast)
        self._log("broadcast.sent", admin)
        return wire.BroadcastSent(broadcast_id)

    def broadcasts(self, query: wire.BroadcastsQuery, _agent: str) -> list[wire.BroadcastEntry]:
        rows = self.store.read(queries.broadcasts, query.type, query.after, query.limit)
        return [
            wire.BroadcastEntry(
                row.id, row.type, row.payload, row.sender, row.signature, iso(row.created_ms)
            )
            for row in rows
        ]

    def online_endpoints(self) -> list[tuple[str, str]]:
        """Return name and endpoint for each agent that is online."""
        return [
            (row.name, row.endpoint)
            for row in self.directory.agents.values()
            if row.status == ACTIVE and row.endpoint and self._is_online(row)
        ]

    # -- steps -------------------------------------------------------------------------------

    def _load(self) -> None:
        self.directory.load(self.store.read(queries.agents), self.store.read(queries.admins))
        self._count()

    def _count(self) -> None:
        counted = Counter(row.status for row in self.directory.agents.values())
        for status in ("pending", "active", "revoked"):
            metrics.agents.labels(status).set(counted[status])

    def _agent(self, name: str) -> AgentRow:
        row = self.directory.agents.get(name)
        if row is None:
            raise wire.NoSuchAgent
        return row

    def _read_again(self, name: str) -> wire.AgentChanged:
        """Read the agent again after a change."""
        row = self.store.read(queries.agent, name)
        if row is None:
            raise wire.NoSuchAgent
        self.directory.put(row)
        self._count()
        return wire.AgentChanged(wire.AgentState(row.name, row.status))

    def _decide(
        self, verb: Callable[..., str], name: str, admin: str, *more: Any
    ) -> wire.AgentChanged:
        self.write(admin, verb, name, admin, *more)
        self._log(f"agent.{verb.__name__}", name, admin=admin)
        return self._read_again(name)

    def check_may_see(self, name: str, viewer: str | None) -> None:
        """Raise DirectoryPrivate, alike for names that exist and names that don't."""
        if not self._may_see(name, viewer):
            raise wire.DirectoryPrivate

    def _may_see(self, name: str, viewer: str | None) -> bool:
        """Return whether the viewer may see where an agent is."""
        if not self.is_private or name == viewer:
            return True
        return viewer is not None and self.store.read(queries.are_contacts, name, viewer)

    def _entry(self, row: AgentRow) -> wire.AgentEntry:
        endpoint = row.endpoint if row.status == ACTIVE else None
        return wire.AgentEntry(
            row.name, row.public_key, row.status, endpoint, row.version, iso(row.created_ms)
        )

    def _presence(self, name: str) -> wire.PresenceEntry:
        row = self.directory.agents.get(name)
        if row is None or row.status != ACTIVE:
            return wire.PresenceEntry(name, False, None, None)
        return wire.PresenceEntry(
            name, self._is_online(row), row.endpoint, _iso(row.last_seen_ms), row.version
        )

    def _is_online(self, row: AgentRow) -> bool:
        return (
            row.last_seen_ms is not None
            and self.clock.now_ms() - row.last_seen_ms <= self._offline_ms
        )

    def _contact(
        self, row: ContactRow, other: AgentRow, change: queries.KeyChange
    ) -> wire.ContactEntry:
        return wire.ContactEntry(
            other.name, other.public_key, other.endpoint, iso(row.accepted_ms or row.requested_ms),
            self._is_online(other), _iso(other.last_seen_ms), other.version, other.former_key,
            other.rotation, _iso(change.replaced_ms), change.is_recovering,
            self.directory.direct.get(other.name),
        )  # fmt: skip

    def _log(self, event: str, agent: str, address: str = "", **more: str) -> None:
        self.log.info("relay", event=event, agent=agent, address=address, **more)


def _iso(ms: int | None) -> str | None:
    return None if ms is None else iso(ms)


def _show_entry(row: KeyLogRow, *, is_visible: bool) -> KeyLogEntry:
    fields = (iso(row.at_ms), row.event, row.agent, row.public_key)
    if is_visible:
        return KeyLogEntry(row.number, row.hash, *fields)
    return KeyLogEntry(row.number, row.hash, digest=entry_digest(row.number, *fields))


def _check_email(email: str) -> str:
    if is_disposable(email):
        raise wire.EmailRefused
    return email.lower()
