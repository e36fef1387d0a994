"""Changes the relay's tables, each inside one transaction. Module-level, with arguments that
pickle."""

import hashlib
import hmac
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

from appliance.kernel import meta
from appliance.kernel.batch import Tx
from appliance.kernel.clock import DAY_MS, HOUR_MS
from appliance.network.broadcast import (
    RELAY_SENDER,
    REVOCATION,
    SignedBroadcast,
    sign_broadcast,
)
from appliance.network.keys import AgentKey
from appliance.relay import key_log, queries, wire
from appliance.relay.rows import UsedSignatureRow
from appliance.relay.states import ACTIVE, PENDING, REVOKED

CODE_MS = wire.CODE_MINUTES * 60_000
VERIFIED_MS = HOUR_MS  # how long a verified address can be used for a registration
CONTACTS_MAX = 1_000  # an agent's contacts, including its requests
INCOMING_MAX = 100  # requests that wait for an agent's answer
DENIALS_MAX = 3  # by one agent, after which the requester is blocked
EVENTS_DAYS = 30.0
BROADCASTS_MAX = 1_000  # the newest are kept
RECOVERY_MS = HOUR_MS  # in which the former key can cancel, and contacts see the recovery
CONTESTED_MS = DAY_MS  # the same, for a recovery after one that the former key ended
CONTEST_MS = 30 * DAY_MS  # how long such an end counts
RECOVERED_MAX = 100  # keys that one round replaces
PRUNED_MAX = 1_000  # rows that one round deletes from a table

CodeResult = Literal["verified", "refused"]


def use_signatures(tx: Tx, rows: Sequence[UsedSignatureRow]) -> None:
    """Store used signatures, and delete up to two expired ones for each."""
    tx.execute(
        "DELETE FROM used_signature WHERE digest IN (SELECT digest FROM used_signature"
        " WHERE expires_ms < ? ORDER BY expires_ms LIMIT ?)",
        (tx.now_ms, 2 * len(rows)),
    )
    tx.executemany("INSERT OR IGNORE INTO used_signature (digest, expires_ms) VALUES (?, ?)", rows)


# -- mail addresses ----------------------------------------------------------------------


def add_code(tx: Tx, agent: str, email: str, code: str, public_key: str | None) -> int:
    row = tx.execute(
        "INSERT INTO verifications (agent, email, code, public_key, attempts, expires_ms)"
        " VALUES (?, ?, ?, ?, 0, ?) RETURNING id",
        (agent, email, _code_digest(tx, agent, email, code), public_key, tx.now_ms + CODE_MS),
    )
    return int(row.fetchone()[0])


_CONTESTED = (
    "SELECT 1 FROM log WHERE agent = ?1 AND name = 'agent.recovery-cancelled' AND at_ms > ?2 AND"
    " event_id > (SELECT ifnull(max(event_id), 0) FROM log WHERE agent = ?1"
    " AND name = 'agent.recovered')"
)


def confirm_code(tx: Tx, agent: str, code: str) -> CodeResult:
    """Confirm a code. A wrong code counts as an attempt for all of the name's open codes."""
    rows = tx.execute(
        "SELECT id, email, code FROM verifications WHERE agent = ? AND verified_ms IS NULL"
        " AND expires_ms >= ? AND attempts < ?",
        (agent, tx.now_ms, wire.ATTEMPTS_MAX),
    ).fetchall()
    matching = [
        number
        for number, email, stored in rows
        if hmac.compare_digest(stored, _code_digest(tx, agent, email, code))
    ]
    if not matching:
        tx.execute(
            "UPDATE verifications SET attempts = attempts + 1 WHERE agent = ?"
            " AND verified_ms IS NULL",
            (agent,),
        )
        return "refused"
    tx.execute(
        "UPDATE verifications SET verified_ms = ?, expires_ms = ? WHERE id = ?",
        (tx.now_ms, tx.now_ms + VERIFIED_MS, matching[-1]),
    )
    return "verified"


def _code_digest(tx: Tx, agent: str, email: str, code: str) -> bytes:
    key = bytes.fromhex(meta.value(tx, "code_key") or "")
    return hmac.digest(key, f"{agent}\n{email}\n{code}".encode(), hashlib.sha256)


# -- agents ------------------------------------------------------------------------------


def register(tx: Tx, command: wire.RegisterAgent, address: str) -> None:
    email = command.owner_email.lower()
    verified = tx.execute(
        "SELECT 1 FROM verifications WHERE agent = ? AND email = ? AND verified_ms IS NOT NULL"
        " AND expires_ms >= ? AND coalesce(public_key, ?) = ?",
        (command.name, email, tx.now_ms, command.public_key, command.public_key),
    ).fetchone()
    if verified is None:
        raise wire.EmailNotVerified
    inserted = tx.execute(
        "INSERT INTO agents (name, public_key, owner_email, endpoint, version, status, address,"
        " created_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (command.name, command.public_key, email, command.endpoint, command.version, PENDING,
         address, tx.now_ms),
    )  # fmt: skip
    if inserted.rowcount == 0:
        raise wire.AgentTaken
    tx.execute("DELETE FROM verifications WHERE agent = ?", (command.name,))
    key_log.append(tx, "registered", command.name)
    record(tx, "agent.registered", command.name)


def approve(tx: Tx, name: str, admin: str, needed: int) -> str:
    """Approve an agent and return the new status. The agent becomes active once `needed` admins
    approve; approving an active agent changes nothing."""
    status = _status(tx, name)
    if status != PENDING:
        return status
    added = tx.execute(
        "INSERT INTO approvals (agent, admin, approved_ms) VALUES (?, ?, ?) ON CONFLICT DO UPDATE"
        " SET approved_ms = excluded.approved_ms WHERE approved_ms IS NULL",
        (name, admin, tx.now_ms),
    )
    if added.rowcount:
        record(tx, "agent.approved", name, admin)
    (count,) = tx.execute(
        "SELECT count(*) FROM approvals WHERE agent = ? AND approved_ms IS NOT NULL"
        " AND admin IN (SELECT agent FROM admins WHERE removed_ms IS NULL)",
        (name,),
    ).fetchone()
    if count < needed:
        return PENDING
    _decide(tx, name, ACTIVE, admin)
    return ACTIVE


def note_ask(tx: Tx, agent: str, admin: str, ask_id: str | None) -> None:
    """Record the question to an admin; None: the question does not wait any more."""
    tx.execute(
        "INSERT INTO approvals (agent, admin, ask_id) VALUES (?, ?, ?)"
        " ON CONFLICT DO UPDATE SET ask_id = excluded.ask_id",
        (agent, admin, ask_id),
    )


def revoke(
    tx: Tx, name: str, admin: str, broadcast_id: str, broadcast: SignedBroadcast | None = None
) -> str:
    """Revoke an agent, announce the revocation, and delete the agent's contacts; the other agents
    receive events. Without an admin's broadcast, the relay signs one for a new revocation."""
    is_new = _status(tx, name) != REVOKED
    if is_new:
        _decide(tx, name, REVOKED, admin)
        for other in _others(tx, name):
            _add_event(tx, other, name, "revoked")
        tx.execute("DELETE FROM contacts WHERE agent_a = ? OR agent_b = ?", (name, name))
        _end_recovery(tx, name)
        key_log.append(tx, "revoked", name)
        record(tx, "agent.revoked", name, admin)
        broadcast = broadcast or _sign_revocation(tx, name, admin)
    if broadcast is not None:
        add_broadcast(tx, broadcast_id, broadcast)
    return REVOKED


def _sign_revocation(tx: Tx, name: str, admin: str) -> SignedBroadcast:
    """Sign with the relay's own key, for admins whose key is not at hand."""
    key, payload = _relay_key(tx), {"agent": name, "admin": admin}
    return sign_broadcast(key, RELAY_SENDER, REVOCATION, payload, tx.now_ms)


def make_relay_key(tx: Tx) -> None:
    """Make the relay's own key, unless there is one."""
    _relay_key(tx)


def _relay_key(tx: Tx) -> AgentKey:
    made = queries.relay_key(tx)
    if made is None:
        made = queries.RelayKey(AgentKey.generate(), tx.now_ms)
        tx.execute(meta.SET, (queries.RELAY_KEY, f"{made.added_ms} {made.key.pkcs8()}"))
    return made.key


def rotate(tx: Tx, name: str, former: str, key: str, signature: str) -> None:
    """Replace the key. A recovery that waits ends. Raises RecoveryContested."""
    _check_unused(tx, key)
    if _end_recovery(tx, name):
        _record_cancelled(tx, name)
    _replace_key(tx, name, former, key, signature)


def recover(tx: Tx, name: str, email: str, key: str) -> int:
    """Begin the hour after which this key replaces the agent's key, or the day after a recovery
    that the present key has ended. Return when the time ends. Raises EmailNotVerified unless the
    owner's address is verified for the agent and the key."""
    verified = tx.execute(
        "SELECT 1 FROM verifications AS v JOIN agents AS a ON a.name = v.agent"
        " AND a.owner_email = v.email AND a.status = 'active' WHERE v.agent = ? AND v.email = ?"
        " AND v.verified_ms IS NOT NULL AND v.expires_ms >= ? AND v.public_key = ?",
        (name, email, tx.now_ms, key),
    ).fetchone()
    if verified is None:
        raise wire.EmailNotVerified
    _check_unused(tx, key)
    due_ms = tx.now_ms + (CONTESTED_MS if _is_contested(tx, name) else RECOVERY_MS)
    tx.execute(
        "INSERT OR REPLACE INTO recoveries VALUES (?, ?, ?, ?)", (name, key, tx.now_ms, due_ms)
    )
    tx.execute("DELETE FROM verifications WHERE agent = ?", (name,))
    record(tx, "agent.recovery-begun", name)
    return due_ms


def cancel_recovery(tx: Tx, name: str) -> None:
    """End a recovery with the present key. Raises NoSuchRecovery, RecoveryContested."""
    if not _end_recovery(tx, name):
        raise wire.NoSuchRecovery
    _record_cancelled(tx, name)


def _record_cancelled(tx: Tx, name: str) -> None:
    if _is_contested(tx, name):
        raise wire.RecoveryContested(details={"name": name})
    record(tx, "agent.recovery-cancelled", name)


def _is_contested(tx: Tx, name: str) -> bool:
    """Return whether the present key has ended a recovery of late."""
    return tx.execute(_CONTESTED, (name, tx.now_ms - CONTEST_MS)).fetchone() is not None


def finish_recoveries(tx: Tx) -> list[str]:
    """Replace the keys whose hour has passed. Return the agents."""
    rows = tx.execute(
        "SELECT r.agent, a.public_key, r.public_key FROM recoveries AS r JOIN agents AS a"
        " ON a.name = r.agent WHERE r.due_ms <= ? ORDER BY r.due_ms LIMIT ?",
        (tx.now_ms, RECOVERED_MAX),
    ).fetchall()
    for name, former, key in rows:
        _end_recovery(tx, name)
        with suppress(wire.AgentTaken):  # in the meantime
            _check_unused(tx, key)
            _replace_key(tx, name, former, key, None)
    return [name for name, _, _ in rows]


def _end_recovery(tx: Tx, name: str) -> bool:
    return tx.execute("DELETE FROM recoveries WHERE agent = ?", (name,)).rowcount > 0


def _check_unused(tx: Tx, key: str) -> None:
    taken = tx.execute(
        "SELECT 1 FROM agents WHERE public_key = ? OR former_key = ?", (key, key)
    ).fetchone()
    if taken is not None:
        raise wire.AgentTaken


def _replace_key(tx: Tx, name: str, former: str, key: str, signature: str | None) -> None:
    """Replace the key, add events and log entries. `signature`: None in a recovery."""
    event = "recovered" if signature is None else "rotated"
    tx.execute(
        "UPDATE agents SET public_key = ?, former_key = ?, rotation = ? WHERE name = ?"
        " AND public_key = ?",
        (key, former, signature, name, former),
    )
    for other in _others(tx, name):
        _add_event(tx, other, name, "rotated")
    key_log.append(tx, event, name)
    record(tx, f"agent.{event}", name)


def note_seen(tx: Tx, name: str, endpoint: str, version: str) -> int:
    tx.execute(
        "UPDATE agents SET endpoint = ?, version = ?, last_seen_ms = ? WHERE name = ?",
        (endpoint, version, tx.now_ms, name),
    )
    return tx.now_ms


def note_reached(tx: Tx, name: str, endpoint: str, problem: str) -> None:
    tx.execute(
        "UPDATE agents SET reach_problem = ?, reach_ms = ? WHERE name = ? AND endpoint = ?",
        (problem, tx.now_ms, name, endpoint),
    )


def _status(tx: Tx, name: str) -> str:
    row = tx.execute("SELECT status FROM agents WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise wire.NoSuchAgent
    return str(row[0])


def _decide(tx: Tx, name: str, status: str, admin: str) -> None:
    tx.execute(
        "UPDATE agents SET status = ?, decided_by = ?, decided_ms = ? WHERE name = ?",
        (status, admin, tx.now_ms, name),
    )


# -- contacts ----------------------------------------------------------------------------


def request_contact(tx: Tx, agent: str, to: str, greeting: str | None) -> None:
    if _count(tx, agent) >= CONTACTS_MAX:
        raise wire.TooManyContacts(details={"agent": agent})
    if _status(tx, to) != ACTIVE:
        raise wire.NoSuchAgent
    _check_not_blocked(tx, agent, to)
    if _count(tx, to) >= CONTACTS_MAX:
        raise wire.TooManyContacts
    incoming = tx.execute(
        "SELECT count(*) FROM contacts WHERE (agent_a = ? OR agent_b = ?) AND status = ?"
        " AND requested_by <> ?",
        (to, to, PENDING, to),
    ).fetchone()
    if incoming[0] >= INCOMING_MAX:
        raise wire.TooManyContacts
    inserted = tx.execute(
        "INSERT INTO contacts (agent_a, agent_b, status, requested_by, greeting, requested_ms)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (*sorted((agent, to)), PENDING, agent, greeting, tx.now_ms),
    )
    if inserted.rowcount == 0:
        raise wire.ContactExists
    _add_event(tx, to, agent, "requested")


def _check_not_blocked(tx: Tx, agent: str, to: str) -> None:
    """Check that `to` has not denied the agent three times. A request by `to` ends the block."""
    tx.execute("DELETE FROM denials WHERE agent = ? AND requester = ?", (agent, to))
    denied = tx.execute(
        "SELECT 1 FROM denials WHERE agent = ? AND requester = ? AND count >= ?",
        (to, agent, DENIALS_MAX),
    ).fetchone()
    if denied is not None:
        raise wire.RequesterBlocked(details={"name": agent})


def accept_contact(tx: Tx, agent: str, other: str) -> None:
    """Accept a contact. Accepting an active contact changes nothing."""
    if _answerable(tx, agent, other) == ACTIVE:
        return
    tx.execute(
        "UPDATE contacts SET status = ?, accepted_ms = ? WHERE agent_a = ? AND agent_b = ?",
        (ACTIVE, tx.now_ms, *sorted((agent, other))),
    )
    _add_event(tx, other, agent, "accepted")


def deny_contact(tx: Tx, agent: str, other: str) -> None:
    """Deny a contact. The requester receives no event. The third denial blocks the requester."""
    if _answerable(tx, agent, other) != PENDING:
        raise wire.NoSuchContact
    _delete_contact(tx, agent, other)
    tx.execute(
        "INSERT INTO denials (agent, requester, count) VALUES (?, ?, 1)"
        " ON CONFLICT DO UPDATE SET count = count + 1",
        (agent, other),
    )


def remove_contact(tx: Tx, agent: str, other: str) -> None:
    if _contact(tx, agent, other)[0] != ACTIVE:
        raise wire.NoSuchContact
    _delete_contact(tx, agent, other)
    _add_event(tx, other, agent, "removed")


def _answerable(tx: Tx, agent: str, other: str) -> str:
    status, requested_by = _contact(tx, agent, other)
    if status == PENDING and requested_by == agent:
        raise wire.OwnRequest
    return status


def _contact(tx: Tx, agent: str, other: str) -> tuple[str, str]:
    row = tx.execute(
        "SELECT status, requested_by FROM contacts WHERE agent_a = ? AND agent_b = ?",
        sorted((agent, other)),
    ).fetchone()
    if row is None:
        raise wire.NoSuchContact
    return row[0], row[1]


def _delete_contact(tx: Tx, agent: str, other: str) -> None:
    tx.execute("DELETE FROM contacts WHERE agent_a = ? AND agent_b = ?", sorted((agent, other)))


def _others(tx: Tx, name: str) -> list[str]:
    """Return agents that share a contact or a pending request with this agent."""
    rows = tx.execute(
        "SELECT agent_b FROM contacts WHERE agent_a = ?"
        " UNION SELECT agent_a FROM contacts WHERE agent_b = ?",
        (name, name),
    )
    return [other for (other,) in rows]


def _count(tx: Tx, agent: str) -> int:
    """Count the agent's contacts, and its pending requests."""
    (count,) = tx.execute(
        "SELECT count(*) FROM contacts WHERE (agent_a = ? OR agent_b = ?)"
        " AND (status = ? OR requested_by = ?)",
        (agent, agent, ACTIVE, agent),
    ).fetchone()
    return int(count)


def _add_event(tx: Tx, agent: str, contact: str, event: str) -> None:
    tx.execute(
        "INSERT INTO contact_events (agent, contact, event, at_ms) VALUES (?, ?, ?, ?)",
        (agent, contact, event, tx.now_ms),
    )


# -- admins ------------------------------------------------------------------------------


def add_admin(tx: Tx, agent: str, public_key: str) -> None:
    """Add an admin, or replace its key."""
    taken = tx.execute(
        "SELECT 1 FROM admins WHERE public_key = ? AND agent <> ?"
        " UNION SELECT 1 FROM agents WHERE public_key = ?",
        (public_key, agent, public_key),
    ).fetchone()
    if taken is not None:
        raise wire.AgentTaken
    tx.execute(
        "INSERT INTO admins (agent, public_key, added_ms) VALUES (?, ?, ?) ON CONFLICT (agent)"
        " DO UPDATE SET public_key = excluded.public_key, added_ms = excluded.added_ms,"
        " removed_ms = NULL",
        (agent, public_key, tx.now_ms),
    )
    record(tx, "admin.added", agent)


def remove_admin(tx: Tx, agent: str) -> None:
    changed = tx.execute(
        "UPDATE admins SET removed_ms = ? WHERE agent = ? AND removed_ms IS NULL",
        (tx.now_ms, agent),
    )
    if changed.rowcount == 0:
        raise wire.NoSuchAgent("no such admin", hint="agentlip relay admins list")
    record(tx, "admin.removed", agent)


def add_broadcast(tx: Tx, broadcast_id: str, broadcast: SignedBroadcast) -> None:
    inserted = tx.execute(
        "INSERT INTO broadcasts (id, type, payload, sender, signature, created_ms)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (signature) DO NOTHING",
        (broadcast_id, broadcast.type, broadcast.payload, broadcast.sender, broadcast.signature,
         tx.now_ms),
    )  # fmt: skip
    if inserted.rowcount == 0:
        raise wire.BroadcastExists
    record(tx, "broadcast.sent", broadcast.type, broadcast.sender)


def record(tx: Tx, name: str, agent: str, admin: str | None = None) -> None:
    """Write an administrative act into the log."""
    tx.execute(
        "INSERT INTO log (at_ms, name, agent, admin) VALUES (?, ?, ?, ?)",
        (tx.now_ms, name, agent, admin),
    )


def prune(tx: Tx) -> dict[str, int]:
    """Delete expired codes and verifications, old events, and all but the newest broadcasts;
    return how many of each."""
    rules: tuple[tuple[str, str, Any], ...] = (
        ("verifications", "expires_ms < ?", tx.now_ms),
        ("contact_events", "at_ms < ?", tx.now_ms - int(EVENTS_DAYS * DAY_MS)),
        ("broadcasts", "number <= (SELECT max(number) FROM broadcasts) - ?", BROADCASTS_MAX),
    )
    deleted = {}
    for table, where, value in rules:
        statement = (
            f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE {where}"
            f" LIMIT {PRUNED_MAX})"
        )
        deleted[table] = tx.execute(statement, (value,)).rowcount
    return deleted
