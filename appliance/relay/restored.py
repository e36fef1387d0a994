"""Restores the relay: codes are void, no signature is accepted twice, and no agent, admin or
contact becomes valid again."""

import sqlite3

from appliance.kernel import meta
from appliance.relay import key_log
from appliance.relay.queries import RELAY_KEY, SIGNED_AFTER
from appliance.workspace.restoring import RestoreContext

_REVOKED = (
    "FROM main.agents AS r JOIN present.agents AS p ON p.name = r.name"
    " WHERE r.status <> 'revoked' AND p.status = 'revoked'"
)
_REMOVED = (
    "FROM main.contacts WHERE (agent_a, agent_b) NOT IN (SELECT agent_a, agent_b"
    " FROM present.contacts AS p WHERE p.status IN ('active', main.contacts.status))"
)
_SHOWN = (
    "INSERT INTO contact_events (agent, contact, event, at_ms)"
    " SELECT {}, {}, 'accepted', ? FROM main.contacts WHERE status = 'active'"
)
_HAS_LOG = "SELECT 1 FROM main.sqlite_master WHERE name = 'key_log'"
_GONE = "DELETE FROM main.contacts WHERE {} IN (SELECT name FROM agents WHERE status = 'revoked')"


def adjust_store(connection: sqlite3.Connection, context: RestoreContext) -> None:
    context.notice(
        "lost",
        "agent",
        "SELECT p.name, p.status FROM present.agents AS p"
        " WHERE p.name NOT IN (SELECT name FROM main.agents)",
    )
    context.notice_revoked("agent", f"SELECT r.name, r.owner_email {_REVOKED}")
    context.notice_revoked("contact", f"SELECT agent_a, agent_b {_REMOVED} AND status = 'active'")
    connection.execute("DELETE FROM verifications")
    if not context.carry(
        "INSERT OR IGNORE INTO used_signature SELECT * FROM present.used_signature"
    ):
        # A request that was made since the backup must not be made again.
        connection.execute(meta.SET, (SIGNED_AFTER, str(context.now_ms)))
    _keep_groups(context)
    if not context.revive:
        _carry_forward(connection, context)
    if connection.execute(_HAS_LOG).fetchone():  # else the backup is older than the log
        _continue_log(connection, context)


def _keep_groups(context: RestoreContext) -> None:
    """Keep the groups as they are now, and the key that signs their logs: agents refuse a log that
    does not continue what they have seen."""
    for table in ("groups", "group_members", "group_changes"):
        if context.carry(f"DELETE FROM main.{table} WHERE EXISTS (SELECT 1 FROM present.{table})"):
            context.carry(f"INSERT OR REPLACE INTO main.{table} SELECT * FROM present.{table}")
    context.carry(
        f"INSERT OR REPLACE INTO main.meta SELECT * FROM present.meta WHERE key = '{RELAY_KEY}'"
    )


def _continue_log(connection: sqlite3.Connection, context: RestoreContext) -> None:
    """Keep the present log, because agents refuse a shorter one, and add what the restore
    changes. Recoveries that wait are void."""
    connection.execute("DELETE FROM recoveries")
    context.carry(
        "INSERT OR REPLACE INTO main.key_log SELECT * FROM present.key_log WHERE"
        " (SELECT count(*) FROM present.key_log) >= (SELECT count(*) FROM main.key_log)"
    )
    key_log.follow_restore(connection, context.now_ms)


def _carry_forward(connection: sqlite3.Connection, context: RestoreContext) -> None:
    """Keep revoked agents revoked, also those that the backup lacks: names and keys are never
    reused. Replaced keys stay replaced, and removed admins and contacts removed. If contacts
    can't be compared, each agent gets an event for each contact."""
    context.carry(
        "UPDATE main.agents SET status = 'revoked', decided_by = p.decided_by,"
        " decided_ms = p.decided_ms FROM present.agents AS p WHERE p.name = agents.name"
        " AND p.status = 'revoked'"
    )
    context.carry(
        "INSERT OR IGNORE INTO main.agents SELECT * FROM present.agents WHERE status = 'revoked'"
    )
    context.carry(
        "UPDATE OR IGNORE main.agents SET public_key = p.public_key, former_key = p.former_key,"
        " rotation = p.rotation FROM present.agents AS p WHERE p.name = agents.name"
        " AND p.former_key IS NOT NULL AND p.public_key <> agents.public_key"
    )
    context.carry(
        "UPDATE OR IGNORE main.admins SET public_key = p.public_key, added_ms = p.added_ms,"
        " removed_ms = p.removed_ms FROM present.admins AS p WHERE p.agent = admins.agent"
    )
    if not context.carry(f"DELETE {_REMOVED}"):
        for sides in (("agent_a", "agent_b"), ("agent_b", "agent_a")):
            connection.execute(_SHOWN.format(*sides), (context.now_ms,))
    for side in ("agent_a", "agent_b"):
        connection.execute(_GONE.format(side))
