"""The broker's changes, each inside one transaction. Module-level, with arguments that pickle.

The statements exist in PostgreSQL too. There is one writer, so what was read in a transaction
still holds when it writes.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from appliance.broker import log_writes, queries
from appliance.broker.log_writes import DeliveryAck
from appliance.broker.retention import dedupe_window_ms
from appliance.broker.rows import (
    DedupeRow,
    HistoryRow,
    MentionRow,
    QueuedMessageRow,
    TopicMessageRow,
    UsedNonceRow,
)
from appliance.broker.validation import RANKS, Command, DedupeRecord
from appliance.kernel.batch import Tx
from appliance.kernel.delivery import CallOutcome
from appliance.kernel.registered_webhook import Columns, note_outcome
from appliance.mesh.push import Push

FREE = "lease_owner = NULL, lease_until_ms = NULL"
UNLESS_THERE = "ON CONFLICT DO NOTHING"


class AcceptResult(Struct, frozen=True):
    """A send's dedupe record, found or created; None: the destination does not exist."""

    record: DedupeRecord | None
    is_new: bool = False


class DeliveriesCommitted(Struct, frozen=True):
    """Published after the commit: the new deliveries' recipients."""

    mesh_id: str
    recipients: tuple[str, ...]


def insert(tx: Tx, table: str, row: NamedTuple, clause: str = "") -> bool:
    """Insert a row; return False if there is a row with this key, and `clause` is UNLESS_THERE."""
    columns, marks = ", ".join(row._fields), ", ".join("?" * len(row))
    sql = f"INSERT INTO {table} ({columns}) VALUES ({marks}) {clause}"
    return tx.execute(sql, row).rowcount == 1


# -- signatures ------------------------------------------------------------------------------


def remember_nonces(tx: Tx, used: Sequence[UsedNonceRow]) -> None:
    """Store nonces, in or before the requests' transaction. Each inserted row deletes up to two
    expired ones, so that few are stored."""
    tx.execute(
        "DELETE FROM used_nonce WHERE (expires_ms, digest) IN (SELECT expires_ms, digest"
        " FROM used_nonce WHERE expires_ms < ? ORDER BY expires_ms LIMIT ?)",
        (tx.now_ms, 2 * len(used)),
    )
    for nonce in used:
        insert(tx, "used_nonce", nonce, UNLESS_THERE)


# -- accepting (B2 and B3) -------------------------------------------------------------------


def accept_many(tx: Tx, commands: Sequence[Command]) -> list[AcceptResult]:
    """Write all in one transaction. If one fails, all are rolled back; the caller then writes each
    alone."""
    results = [_accept(tx, command) for command in commands]
    new = [result.record.broker_message_id for result in results if result.record and result.is_new]
    if new:
        log_writes.log_accepted(tx, new)
    return results


def _accept(tx: Tx, command: Command) -> AcceptResult:
    """Accept a send. Reads before it writes, so that a refusal leaves nothing to roll back."""
    mesh_id = command.mesh.id
    record = queries.dedupe_record(tx, mesh_id, command.send.client_message_id)
    if record is not None:
        return AcceptResult(record)
    recipients = recipients_of(tx, command)
    if recipients is None:
        return AcceptResult(None)
    made = DedupeRecord(tx.new_id("bmsg_"), tx.new_id("bh_"), command.fingerprint, True, tx.now_ms)
    _store_id(tx, command, made)
    _store_message(tx, command, made)
    _store_deliveries(tx, command, made.broker_message_id, recipients)
    for pubkey in queries.find_mentioned(tx, mesh_id, command.mentions):
        insert(tx, "mention_index", MentionRow(mesh_id, pubkey, made.broker_message_id))
    if recipients:
        tx.publish(DeliveriesCommitted(mesh_id, recipients))
    return AcceptResult(made, is_new=True)


def recipients_of(tx: Tx, command: Command) -> tuple[str, ...] | None:
    """Return whose deliveries to create; None: the destination does not exist. The sender is left
    out."""
    mesh_id, send = command.mesh.id, command.send
    kind, ref = send.destination_kind, send.destination_ref
    if kind == "dm":
        key = queries.current_key(tx, mesh_id, ref)
        return None if key is None else (key,)
    if not queries.destination_exists(tx, mesh_id, kind, ref):
        return None
    if kind == "queue":
        return (f"queue:{ref}",)
    subscribers = queries.subscribers(tx, mesh_id, kind, ref)
    return tuple([key for key in subscribers if key != command.sender.pubkey])


def _store_id(tx: Tx, command: Command, made: DedupeRecord) -> None:
    mesh, send = command.mesh, command.send
    keep_ms = dedupe_window_ms(mesh.dedupe_mode, mesh.dedupe_retention_days)
    row = DedupeRow(
        mesh.id,
        send.client_message_id,
        made.broker_message_id,
        made.history_id,
        command.fingerprint,
        send.destination_kind,
        send.destination_ref,
        tx.now_ms,
        None if keep_ms is None else tx.steady_ms + keep_ms,
        1,
        command.sender.pubkey,
    )
    insert(tx, "client_message_dedupe", row)


def _store_message(tx: Tx, command: Command, made: DedupeRecord) -> None:
    """Store a message. `created_ms` is a steady clock time, and `skew_ms` what to add to show
    it."""
    mesh_id, sender, send = command.mesh.id, command.sender, command.send
    kind, ref = send.destination_kind, send.destination_ref
    shared: dict[str, Any] = {
        "id": made.broker_message_id, "mesh_id": mesh_id,
        "client_message_id": send.client_message_id, "sender_pubkey": sender.pubkey,
        "sender_name": sender.name, "priority": send.priority, "meta": command.meta,
        "body": send.body, "reply_to_id": send.reply_to_id, "created_ms": tx.steady_ms,
        "skew_ms": tx.now_ms - tx.steady_ms,
    }  # fmt: skip
    if kind == "topic":
        insert(tx, "topic_message", TopicMessageRow(topic=ref, **shared))
    else:
        row = QueuedMessageRow(destination_kind=kind, destination_ref=ref, **shared)
        insert(tx, "message_queue", row)
    history = HistoryRow(
        made.history_id, mesh_id, made.broker_message_id, kind, ref, sender.pubkey, tx.now_ms
    )
    insert(tx, "message_history", history)


def _store_deliveries(tx: Tx, command: Command, message_id: str, recipients: Sequence[str]) -> None:
    mesh_id, kind = command.mesh.id, command.send.destination_kind
    rank, ready_ms = RANKS[command.send.priority], tx.steady_ms
    tx.executemany(
        "INSERT INTO delivery_queue (mesh_id, broker_message_id, recipient, kind, rank, ready_ms,"
        " created_ms) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (mesh_id, message_id, recipient, kind, rank, ready_ms, tx.now_ms)
            for recipient in recipients
        ],
    )


# -- delivering ------------------------------------------------------------------------------


class Demand(Struct, frozen=True):
    """A connection or webhook for which up to `rows_max` deliveries are claimed. `rank_max` 0: only
    priority `now`."""

    owner: str
    mesh_id: str
    mesh: str
    recipients: tuple[str, ...]
    rows_max: int
    rank_max: int


class Claim(Struct, frozen=True):
    """A leased row, with the message to push."""

    owner: str
    id: int
    attempts: int
    push: Push


def ack_and_claim(
    tx: Tx, acks: Sequence[DeliveryAck], demands: Sequence[Demand], lease_ms: int
) -> tuple[int, list[Claim]]:
    """Write acks first, then claims, in one commit for all connections. Return (acks that counted,
    claims)."""
    acked = ack_deliveries(tx, acks)
    claims: list[Claim] = []
    shared: dict[str, Push | None] = {}
    for demand in demands:
        claims += _claim_for(tx, demand, lease_ms, shared)
    if claims:
        log_writes.log_sent(tx, [claim.id for claim in claims])
    return acked, claims


def ack_deliveries(tx: Tx, acks: Sequence[DeliveryAck]) -> int:
    """Delete acked rows; return how many. An ack after its lease ended still counts, unless
    another connection leases the row now."""
    if acks:
        log_writes.log_acked(tx, acks)
    deleted = 0
    for ack in acks:
        deleted += tx.execute(
            "DELETE FROM delivery_queue WHERE id = ? AND broker_message_id = ?"
            " AND (lease_owner = ? OR lease_owner IS NULL)",
            (ack.id, ack.broker_message_id, ack.owner),
        ).rowcount
    return deleted


def _claim_for(
    tx: Tx, demand: Demand, lease_ms: int, shared: dict[str, Push | None]
) -> list[Claim]:
    claims: list[Claim] = []
    limit = demand.rows_max
    for recipient in demand.recipients:
        if limit <= 0:
            break
        rows = queries.ready(tx, demand.mesh_id, recipient, demand.rank_max, limit)
        for id_, message_id, kind, attempts in rows:
            if message_id not in shared:
                shared[message_id] = queries.message(tx, demand.mesh, message_id, kind)
            push = shared[message_id]
            if push is None:
                log_writes.log_without_message(tx, id_)
                tx.execute("DELETE FROM delivery_queue WHERE id = ?", (id_,))
                continue
            claims.append(Claim(demand.owner, id_, attempts + 1, push))
        limit -= len(rows)
    tx.executemany(
        "UPDATE delivery_queue SET lease_owner = ?, lease_until_ms = ?, attempts = attempts + 1"
        " WHERE id = ? AND lease_owner IS NULL",
        [(demand.owner, tx.steady_ms + lease_ms, claim.id) for claim in claims],
    )
    return claims


def release(tx: Tx, owner: str, ids: Sequence[int]) -> None:
    """End these leases: the deliveries are ready again."""
    log_writes.log_released(tx, owner, ids)
    tx.executemany(
        f"UPDATE delivery_queue SET {FREE} WHERE id = ? AND lease_owner = ?",
        [(id_, owner) for id_ in ids],
    )


def release_all(tx: Tx) -> None:
    """End all leases. At the start no connection from an earlier process exists any more."""
    log_writes.log_restart(tx)
    tx.execute(f"UPDATE delivery_queue SET {FREE} WHERE lease_owner IS NOT NULL")


def expire_leases(tx: Tx, limit: int) -> list[tuple[str, str]]:
    """End leases that have expired: return (owner, message) for each."""
    rows = tx.execute(
        "SELECT id, lease_owner, broker_message_id FROM delivery_queue"
        " WHERE lease_owner IS NOT NULL AND lease_until_ms <= ? ORDER BY lease_until_ms LIMIT ?",
        (tx.steady_ms, limit),
    ).fetchall()
    log_writes.log_expired(tx, [row[0] for row in rows])
    tx.executemany(f"UPDATE delivery_queue SET {FREE} WHERE id = ?", [row[:1] for row in rows])
    return [row[1:] for row in rows]


def note_call(
    tx: Tx, mesh_id: str, webhook_id: str, outcome: CallOutcome
) -> tuple[bool, str | None]:
    """Update a webhook after a call: whether its row changed, and the cause if it was disabled.
    Raises WebhookNotFound."""
    row = queries.webhook(tx, mesh_id, webhook_id)
    columns, cause = note_outcome(row, outcome, tx.steady_ms)
    change_webhook(tx, mesh_id, webhook_id, columns)
    return bool(columns), cause


def change_webhook(tx: Tx, mesh_id: str, webhook_id: str, columns: Columns) -> None:
    for column, value in columns.items():
        tx.execute(
            f"UPDATE webhook SET {column} = ? WHERE mesh_id = ? AND id = ?",
            (value, mesh_id, webhook_id),
        )
