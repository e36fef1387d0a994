"""Completes a recovered broker: an id that was accepted stays used, and messages are compared with
their fingerprints."""

from typing import Any

from appliance.kernel.clock import DAY_MS
from appliance.mesh.fingerprint import matches, of_stored
from appliance.recovery.copying import Copying

TABLE = "client_message_dedupe"
UNKNOWN = bytes(32)
"""The fingerprint for an id whose message is lost: no request has it, so a repetition is
refused."""
_MESSAGES = (
    "SELECT id, mesh_id, client_message_id, 'topic' AS kind, topic AS ref, body, reply_to_id,"
    " priority, meta, sender_pubkey, created_ms, skew_ms FROM topic_message UNION ALL"
    " SELECT id, mesh_id, client_message_id, destination_kind, destination_ref, body, reply_to_id,"
    " priority, meta, sender_pubkey, created_ms, skew_ms FROM message_queue"
)
FINGERPRINTED = (
    "SELECT m.id, d.request_fingerprint, d.destination_kind, d.destination_ref, m.body,"
    f" m.reply_to_id, m.priority, m.meta FROM ({_MESSAGES}) AS m"
    f" JOIN {TABLE} AS d ON d.broker_message_id = m.id"
)
"""Each message with its fingerprint, and the fingerprinted fields."""
_WITHOUT_ROW = (
    f"NOT EXISTS (SELECT 1 FROM {TABLE} AS d WHERE d.mesh_id = m.mesh_id"
    " AND d.client_message_id = m.client_message_id) AND m.client_message_id IS NOT NULL"
)
_HISTORY = (
    "coalesce((SELECT h.id FROM message_history AS h"
    " WHERE h.broker_message_id = m.{id}), 'unknown')"
)
_LOGGED = (
    f"SELECT m.message_id, m.mesh_id, m.client_message_id, {_HISTORY.format(id='message_id')},"
    " m.destination_kind, m.destination_ref, m.sender_pubkey, m.accepted_ms FROM log AS m"
    f" WHERE {_WITHOUT_ROW} GROUP BY m.mesh_id, m.client_message_id"
)
_INSERT = (
    f"INSERT OR IGNORE INTO {TABLE} (broker_message_id, mesh_id, client_message_id, history_id,"
    " destination_kind, destination_ref, sender_pubkey, first_seen_ms, expires_ms,"
    " request_fingerprint, history_available) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8,"
    f" (SELECT ?9 + dedupe_retention_days * {DAY_MS} FROM mesh WHERE id = ?2"
    " AND dedupe_mode = 'retention_scoped'), ?10, ?11"
)


def finish(copying: Copying) -> None:
    """Finish the outbox; called by a recovery when all tables are copied."""
    if copying.lacks(TABLE):
        copying.add_rebuilt(TABLE, _from_messages(copying))
        reserved = _from_log(copying) + _from_index(copying)
        copying.result[TABLE].lost = max(copying.result[TABLE].lost, reserved)
        if reserved:
            copying.notes.append(
                f"{reserved} accepted ids are kept without their messages; a repetition is refused"
            )
        if not copying.result[TABLE].counted:
            copying.notes.append("more accepted ids may be lost; a repetition may arrive twice")
    rows = copying.target.execute(FINGERPRINTED)
    copying.report_changed(
        "messages", [message for message, digest, *stored in rows if not matches(digest, *stored)]
    )


def _from_messages(copying: Copying) -> int:
    """Complete rows, because a message has everything that is in its fingerprint."""
    rows: list[tuple[Any, ...]] = copying.target.execute(
        f"SELECT m.*, {_HISTORY.format(id='id')} FROM ({_MESSAGES}) AS m WHERE {_WITHOUT_ROW}"
    ).fetchall()
    return sum(
        copying.target.execute(
            _INSERT,
            (message, mesh, client_id, history, kind, ref, sender, created + skew, created,
             of_stored(kind, ref, body, reply_to, priority, stored_meta), 1),
        ).rowcount
        for message, mesh, client_id, kind, ref, body, reply_to, priority, stored_meta, sender,
        created, skew, history in rows
    )  # fmt: skip


def _from_log(copying: Copying) -> int:
    return sum(
        copying.target.execute(_INSERT, (*row, row[-1], UNKNOWN, 0)).rowcount
        for row in copying.target.execute(_LOGGED).fetchall()
    )


def _from_index(copying: Copying) -> int:
    """Recover ids from the index, whose entries have the row's key."""
    now_ms, added = copying.clock.now_ms(), 0
    for message, mesh, client_id in copying.damaged.entries("dedupe_message"):
        row = (message, mesh, client_id, "unknown", "topic", "unknown", None, now_ms, now_ms)
        added += copying.target.execute(_INSERT, (*row, UNKNOWN, 0)).rowcount
    return added
