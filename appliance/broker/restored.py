"""Restores the broker: a new epoch begins, leases end, and no nonce or revocation since the
backup is forgotten."""

import sqlite3

from appliance.broker.queries import EPOCH
from appliance.kernel import meta
from appliance.kernel.ids import random_id
from appliance.workspace.restoring import RestoreContext

SIGNED_AFTER = "signed_after_ms"
_BOTH = (
    "FROM member AS r JOIN present.member AS p ON p.mesh_id = r.mesh_id AND p.pubkey = r.pubkey"
    " WHERE r.revoked_ms IS NULL AND p.revoked_ms IS NOT NULL"
)
_LOST = (
    "SELECT p.id, p.destination_kind || ' ' || p.destination_ref FROM present.message_history AS p"
    " WHERE p.id NOT IN (SELECT id FROM message_history) AND {} (SELECT 1"
    " FROM present.delivery_queue AS d WHERE d.broker_message_id = p.broker_message_id)"
)
_SUCCESSORS = """
WITH RECURSIVE chain (mesh_id, pubkey) AS (
  SELECT mesh_id, successor FROM main.member WHERE successor IS NOT NULL
  UNION
  SELECT p.mesh_id, p.successor FROM present.member AS p JOIN chain USING (mesh_id, pubkey)
  WHERE p.successor IS NOT NULL
)
INSERT OR IGNORE INTO main.member (mesh_id, pubkey, name, added_ms, revoked_ms, successor)
SELECT p.mesh_id, p.pubkey, p.name, p.added_ms, p.revoked_ms, p.successor
FROM present.member AS p JOIN chain USING (mesh_id, pubkey)"""


def adjust_store(connection: sqlite3.Connection, context: RestoreContext) -> None:
    _notice(context)
    connection.execute(meta.SET, (EPOCH, random_id()))  # members compare what they have sent
    connection.execute(
        "UPDATE delivery_queue SET lease_owner = NULL, lease_until_ms = NULL"
        " WHERE lease_owner IS NOT NULL"
    )
    if not context.carry("INSERT OR IGNORE INTO used_nonce SELECT * FROM present.used_nonce"):
        # A signed request that was accepted since the backup must not be accepted again.
        connection.execute(meta.SET, (SIGNED_AFTER, str(context.now_ms)))
    if not context.revive:
        _revoke(connection, context)


def _notice(context: RestoreContext) -> None:
    context.notice("lost", "mesh message", _LOST.format("EXISTS"))
    context.notice("lost-delivered", "mesh message", _LOST.format("NOT EXISTS"))
    context.notice(
        "lost",
        "member",
        "SELECT p.mesh_id || '/' || p.pubkey, p.name FROM present.member AS p"
        " WHERE (p.mesh_id, p.pubkey) NOT IN (SELECT mesh_id, pubkey FROM member)",
    )
    context.notice_revoked("member", f"SELECT r.mesh_id || '/' || r.pubkey, r.name {_BOTH}")
    context.notice(
        "sent-again",
        "delivery",
        "SELECT r.broker_message_id || ' to ' || r.recipient, r.kind FROM delivery_queue AS r"
        " WHERE NOT EXISTS (SELECT 1 FROM present.delivery_queue AS p"
        " WHERE p.broker_message_id = r.broker_message_id AND p.recipient = r.recipient)",
    )


def _revoke(connection: sqlite3.Connection, context: RestoreContext) -> None:
    """Repeat revocations. A member whose key was rotated continues with its new key."""
    query = f"SELECT r.mesh_id, r.pubkey {_BOTH}"
    again = connection.execute(query).fetchall() if context.present else []
    context.carry(
        "UPDATE member SET revoked_ms = p.revoked_ms, successor = p.successor"
        " FROM present.member AS p WHERE p.mesh_id = member.mesh_id AND p.pubkey = member.pubkey"
        " AND member.revoked_ms IS NULL AND p.revoked_ms IS NOT NULL"
    )
    context.carry(_SUCCESSORS)
    for mesh_id, pubkey in again:
        heir = _heir(connection, mesh_id, pubkey)
        for table, column in (("subscription", "subscriber"), ("delivery_queue", "recipient")):
            where = f"WHERE mesh_id = ? AND {column} = ?"
            if heir is not None:
                connection.execute(
                    f"UPDATE OR IGNORE {table} SET {column} = ? {where}", (heir, mesh_id, pubkey)
                )
            connection.execute(f"DELETE FROM {table} {where}", (mesh_id, pubkey))


def _heir(connection: sqlite3.Connection, mesh_id: str, pubkey: str) -> str | None:
    """Return the member's current key; None if it was revoked without a new one."""
    query = "SELECT successor, revoked_ms FROM member WHERE mesh_id = ? AND pubkey = ?"
    seen = {pubkey}
    while (row := connection.execute(query, (mesh_id, pubkey)).fetchone()) is not None:
        successor, revoked_ms = row
        if revoked_ms is None:
            return pubkey
        if successor is None or successor in seen:
            return None
        seen.add(successor)
        pubkey = successor
    return None
