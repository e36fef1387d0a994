"""Prunes messages and ids, each in a transaction."""

from appliance.broker.log_writes import log_dead_of_message
from appliance.kernel import meta
from appliance.kernel.batch import Tx


def prune_messages(tx: Tx, mesh_id: str, before_ms: int, limit: int) -> int:
    """Prune older messages with their history, mentions and deliveries. Their ids stay used."""
    removed = 0
    for table in ("topic_message", "message_queue"):
        rows = tx.execute(
            f"SELECT id FROM {table} WHERE mesh_id = ? AND created_ms < ?"
            " ORDER BY created_ms LIMIT ?",
            (mesh_id, before_ms, limit - removed),
        ).fetchall()
        for (message_id,) in rows:
            log_dead_of_message(tx, message_id)
            tx.execute(f"DELETE FROM {table} WHERE id = ?", (message_id,))
            _remove_derived(tx, mesh_id, message_id)
        removed += len(rows)
    return removed


def _remove_derived(tx: Tx, mesh_id: str, message_id: str) -> None:
    """Delete the rows that refer to a deleted message, and mark its id as pruned."""
    for table in ("message_history", "mention_index", "delivery_queue"):
        tx.execute(f"DELETE FROM {table} WHERE broker_message_id = ?", (message_id,))
    marked = tx.execute(
        "UPDATE client_message_dedupe SET history_available = 0 WHERE broker_message_id = ?",
        (message_id,),
    ).rowcount
    if marked:
        tx.execute(
            "INSERT INTO message_tombstone (broker_message_id, mesh_id, removed_ms)"
            " VALUES (?, ?, ?) ON CONFLICT (broker_message_id) DO NOTHING",
            (message_id, mesh_id, tx.now_ms),
        )


def prune_ids(tx: Tx, now_ms: int, limit: int) -> int:
    """Prune expired ids, except those with outstanding deliveries."""
    rows = tx.execute(
        "SELECT d.mesh_id, d.client_message_id, d.broker_message_id"
        " FROM client_message_dedupe AS d WHERE d.expires_ms IS NOT NULL AND d.expires_ms <= ?"
        " AND NOT EXISTS (SELECT 1 FROM delivery_queue AS v"
        " WHERE v.broker_message_id = d.broker_message_id) ORDER BY d.expires_ms LIMIT ?",
        (now_ms, limit),
    ).fetchall()
    for mesh_id, client_id, message_id in rows:
        tx.execute(
            "DELETE FROM client_message_dedupe WHERE mesh_id = ? AND client_message_id = ?",
            (mesh_id, client_id),
        )
        tx.execute("DELETE FROM message_tombstone WHERE broker_message_id = ?", (message_id,))
    return len(rows)


def note_time(tx: Tx, key: str) -> None:
    """Store the current time under a key that the next process reads as well."""
    tx.execute(meta.SET, (key, str(tx.now_ms)))
