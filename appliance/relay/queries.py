"""Reads the relay's tables. Every listing has a limit."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from appliance.kernel import meta
from appliance.kernel.clock import DAY_MS
from appliance.kernel.meta import Executor
from appliance.network.keys import AgentKey
from appliance.relay.rows import (
    AgentRow,
    ApprovalRow,
    BroadcastRow,
    ContactEventRow,
    ContactRow,
    RelayAdminRow,
    UsedSignatureRow,
)
from appliance.relay.states import ACTIVE, PENDING

AGENTS_MAX = 100_000  # in memory, about 1 KB each
LISTED_MAX = 1_000  # rows in one listing
SIGNATURES_MAX = 200_000  # change signatures; ten minutes have half as many requests
BURST_MS = DAY_MS
SIGNED_AFTER = "signed_after_ms"  # in meta: older signatures may have been used before
RELAY_KEY = "relay_key"  # in meta: when the relay's own key was made, and the key
_CONTACTS = (
    "SELECT * FROM contacts WHERE agent_a = :agent AND status = :status"
    " UNION ALL SELECT * FROM contacts WHERE agent_b = :agent AND status = :status LIMIT :limit"
)


class RelayKey(NamedTuple):
    """The relay's own key, which signs revocations and group logs."""

    key: AgentKey
    added_ms: int


class KeyChange(NamedTuple):
    replaced_ms: int | None
    is_recovering: bool


def relay_key(reader: Executor) -> RelayKey | None:
    """Return the relay's key; None before the first start."""
    stored = meta.value(reader, RELAY_KEY)
    if stored is None:
        return None
    added_ms, _, text = stored.partition(" ")
    return RelayKey(AgentKey.of(text), int(added_ms))


def agents(reader: Executor) -> list[AgentRow]:
    rows = reader.execute("SELECT * FROM agents ORDER BY name LIMIT ?", (AGENTS_MAX,))
    return [AgentRow(*row) for row in rows]


def agent(reader: Executor, name: str) -> AgentRow | None:
    row = reader.execute("SELECT * FROM agents WHERE name = ?", (name,)).fetchone()
    return None if row is None else AgentRow(*row)


def used_signatures(reader: Executor) -> list[UsedSignatureRow]:
    """Return used signatures; the newest, if there are more than can be used before they expire."""
    rows = reader.execute(
        "SELECT digest, expires_ms FROM used_signature ORDER BY expires_ms DESC LIMIT ?",
        (SIGNATURES_MAX,),
    )
    return [UsedSignatureRow(*row) for row in rows]


def admins(reader: Executor) -> list[RelayAdminRow]:
    """Return the current admins."""
    rows = reader.execute(
        "SELECT * FROM admins WHERE removed_ms IS NULL ORDER BY agent LIMIT ?", (LISTED_MAX,)
    )
    return [RelayAdminRow(*row) for row in rows]


def pending_agents(reader: Executor, limit: int) -> list[tuple[AgentRow, int, int]]:
    """Return pending agents, oldest first, each with how many other agents have its mail
    address, and how many others were registered from its address within a day."""
    rows = reader.execute(
        "SELECT a.*,"
        " (SELECT count(*) FROM agents AS o WHERE o.owner_email = a.owner_email) - 1,"
        " (SELECT count(*) FROM agents AS o WHERE o.address = a.address"
        "  AND abs(o.created_ms - a.created_ms) < ?) - 1"
        " FROM agents AS a WHERE a.status = 'pending' ORDER BY a.created_ms LIMIT ?",
        (BURST_MS, limit),
    )
    return [(AgentRow(*row[:-2]), row[-2], row[-1]) for row in rows]


def approvals(reader: Executor, agent: str) -> list[ApprovalRow]:
    rows = reader.execute("SELECT * FROM approvals WHERE agent = ? ORDER BY admin", (agent,))
    return [ApprovalRow(*row) for row in rows]


def approval_rows(reader: Executor) -> list[ApprovalRow]:
    """Return the admins whose answers are pending."""
    rows = reader.execute(
        "SELECT * FROM approvals WHERE ask_id IS NOT NULL ORDER BY ask_id LIMIT ?", (LISTED_MAX,)
    )
    return [ApprovalRow(*row) for row in rows]


def unreached_agents(reader: Executor, before_ms: int, limit: int) -> list[tuple[str, str]]:
    """Return name and endpoint for pending agents whose endpoint was not tried since
    `before_ms`."""
    return list(
        reader.execute(
            "SELECT name, endpoint FROM agents WHERE status = 'pending' AND endpoint IS NOT NULL"
            " AND coalesce(reach_ms, 0) < ? ORDER BY created_ms LIMIT ?",
            (before_ms, limit),
        )
    )


def contacts(reader: Executor, agent: str) -> list[ContactRow]:
    rows = reader.execute(_CONTACTS, {"agent": agent, "status": ACTIVE, "limit": LISTED_MAX})
    return [ContactRow(*row) for row in rows]


def key_changes(reader: Executor, names: Iterable[str]) -> dict[str, KeyChange]:
    """Return when each agent's key was replaced, and whether a recovery waits."""
    rows = reader.execute(
        "SELECT value, (SELECT max(at_ms) FROM key_log WHERE agent = value"
        " AND event IN ('rotated', 'recovered')),"
        " EXISTS (SELECT 1 FROM recoveries WHERE agent = value) FROM json_each(?)",
        (msgspec.json.encode(list(names)).decode(),),
    )
    return {name: KeyChange(at_ms, bool(waits)) for name, at_ms, waits in rows}


def incoming(reader: Executor, agent: str) -> list[ContactRow]:
    """Return requests that wait for this agent's answer."""
    rows = reader.execute(_CONTACTS, {"agent": agent, "status": PENDING, "limit": 2 * LISTED_MAX})
    return [row for row in map(ContactRow._make, rows) if row.requested_by != agent]


def are_contacts(reader: Executor, agent: str, other: str) -> bool:
    row = reader.execute(
        "SELECT 1 FROM contacts WHERE agent_a = ? AND agent_b = ? AND status = 'active'",
        sorted((agent, other)),
    ).fetchone()
    return row is not None


def events(reader: Executor, agent: str, after: int, limit: int) -> list[ContactEventRow]:
    rows = reader.execute(
        "SELECT * FROM contact_events WHERE agent = ? AND id > ? ORDER BY id LIMIT ?",
        (agent, after, limit),
    )
    return [ContactEventRow(*row) for row in rows]


def new_broadcasts(reader: Executor, after: int, since_ms: int, limit: int) -> list[BroadcastRow]:
    """Return broadcasts after this number and time, oldest first."""
    rows = reader.execute(
        "SELECT * FROM broadcasts WHERE number > ? AND created_ms > ? ORDER BY number LIMIT ?",
        (after, since_ms, limit),
    )
    return [BroadcastRow(*row) for row in rows]


def broadcasts(
    reader: Executor, kind: str | None, after: str | None, limit: int
) -> list[BroadcastRow]:
    rows = reader.execute(
        "SELECT * FROM broadcasts WHERE type = coalesce(?, type) AND number >"
        " coalesce((SELECT number FROM broadcasts WHERE id = ?), 0) ORDER BY number DESC LIMIT ?",
        (kind, after, limit),
    )
    return [BroadcastRow(*row) for row in rows]
