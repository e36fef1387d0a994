"""The inbox's changes, each inside one transaction."""

import msgspec

from appliance.inbox import queries, wire
from appliance.inbox.event import of_message
from appliance.kernel.batch import Tx
from appliance.kernel.clock import iso
from appliance.mesh.push import Push

INSERT = (
    "INSERT INTO inbox (id, client_message_id, broker_message_id, mesh, topic, sender_pubkey,"
    " sender_name, body, meta, received_at, reply_to_id, destination_kind, destination_ref,"
    " priority, created_at, own) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (mesh, client_message_id) DO NOTHING RETURNING number, id"
)


def receive(tx: Tx, push: Push, own: bool) -> bool:
    """Store a message and publish its event; False, without an event, if it is stored already."""
    client_id = push.client_message_id or f"broker:{push.message_id}"
    meta = msgspec.json.encode(push.meta).decode() if push.meta else None
    row = tx.execute(
        INSERT,
        (
            tx.new_id("in_"), client_id, push.message_id, push.mesh, push.topic,
            push.sender_pubkey, push.sender_name, push.body, meta, tx.now_ms, push.reply_to_id,
            push.destination_kind, push.destination_ref, push.priority, push.created_at, own,
        ),
    ).fetchone()  # fmt: skip
    if row is None:
        return False
    number, id_ = row
    message = wire.InboxMessage(
        number, id_, client_id, push.message_id, push.mesh, push.topic, push.destination_kind,
        push.destination_ref, push.sender_pubkey, push.sender_name, push.priority,
        push.meta or None, push.body, push.reply_to_id, push.created_at, iso(tx.now_ms), own,
    )  # fmt: skip
    tx.publish(of_message(message))
    return True


def note_revoked(tx: Tx, mesh: str, pubkey: str) -> None:
    tx.execute(
        "INSERT INTO revoked (mesh, pubkey, since_ms) VALUES (?, ?, ?) ON CONFLICT (mesh)"
        " DO UPDATE SET pubkey = excluded.pubkey, since_ms = excluded.since_ms",
        (mesh, pubkey, tx.now_ms),
    )


def note_accepted(tx: Tx, mesh: str) -> None:
    tx.execute("DELETE FROM revoked WHERE mesh = ?", (mesh,))


def subscribe(tx: Tx, mesh: str, topic: str, limit: int) -> bool:
    (count,) = tx.execute("SELECT count(*) FROM topics WHERE mesh = ?", (mesh,)).fetchone()
    if count >= limit and not _is_subscribed(tx, mesh, topic):
        raise wire.TooManyTopics(details={"limit": limit})
    cursor = tx.execute(
        "INSERT INTO topics (mesh, topic, subscribed_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (mesh, topic, tx.now_ms),
    )
    return cursor.rowcount == 1


def unsubscribe(tx: Tx, mesh: str, topic: str) -> bool:
    cursor = tx.execute("DELETE FROM topics WHERE mesh = ? AND topic = ?", (mesh, topic))
    return cursor.rowcount == 1


def change_profile(tx: Tx, mesh: str, command: wire.ChangeProfile) -> wire.ProfileReply:
    """Omitted fields stay as they are."""
    now = queries.profile(tx, mesh)
    summary = now.summary if command.summary is None else command.summary
    status = now.status if command.status is None else command.status
    visible = now.visible if command.visible is None else command.visible
    tx.execute(
        "INSERT INTO profiles (mesh, summary, status, visible, changed_at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (mesh) DO UPDATE SET summary = excluded.summary, status = excluded.status,"
        " visible = excluded.visible, changed_at = excluded.changed_at",
        (mesh, summary, status, visible, tx.now_ms),
    )
    return queries.profile(tx, mesh)


def sweep(tx: Tx, table: str, before_ms: int, limit: int) -> int:
    """Delete up to `limit` expired rows."""
    column = {"inbox": "received_at", "hook_runs": "at"}[table]
    cursor = tx.execute(
        f"DELETE FROM {table} WHERE number IN"
        f" (SELECT number FROM {table} WHERE {column} < ? ORDER BY {column} LIMIT ?)",
        (before_ms, limit),
    )
    return cursor.rowcount


def _is_subscribed(tx: Tx, mesh: str, topic: str) -> bool:
    row = tx.execute("SELECT 1 FROM topics WHERE mesh = ? AND topic = ?", (mesh, topic))
    return row.fetchone() is not None
