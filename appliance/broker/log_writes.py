"""Writes the broker's log: what was accepted, each delivery, and how it ended.

Rows are written in the transactions that change the state, so a row is there exactly if the change
is. A batch's rows are one statement: that costs a third as much as one statement each.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from appliance.kernel.batch import Tx

ACCEPTED = "message.accepted"
SENT, ACKED, FAILED, DEAD = "delivery.sent", "delivery.acked", "delivery.failed", "delivery.dead"

RELEASED = "released before it was acked"
LEASE_EXPIRED = "not acked before the lease ended"
RESTARTED = "the broker was restarted"
RECIPIENT_REMOVED = "the recipient was removed"
MESSAGE_REMOVED = "the message was removed"

_INSERT = (
    "INSERT INTO log (at_ms, name, mesh_id, message_id, client_message_id, destination_kind,"
    " destination_ref, sender_pubkey, recipient, attempt, accepted_ms, error)"
)
_OF_MESSAGE = (
    "d.mesh_id, d.broker_message_id, d.client_message_id, d.destination_kind, d.destination_ref,"
    " coalesce(d.sender_pubkey, '')"
)
_ACCEPTED = (
    f"{_INSERT} SELECT ?, ?, {_OF_MESSAGE}, NULL, NULL, d.first_seen_ms, NULL"
    " FROM json_each(?) AS j CROSS JOIN client_message_dedupe AS d ON d.broker_message_id = j.value"
)
# Attempts are counted when they begin.
_DELIVERIES = (
    f"{_INSERT} SELECT ?, ?, {_OF_MESSAGE}, v.recipient, nullif(v.attempts, 0), d.first_seen_ms, ?"
)
# A message's dedupe row stays as long as its deliveries.
_MESSAGE = "CROSS JOIN client_message_dedupe AS d ON d.broker_message_id = v.broker_message_id"
_LISTED = f"FROM json_each(?) AS j CROSS JOIN delivery_queue AS v ON v.id = j.value {_MESSAGE}"
_ACKS = (
    "FROM json_each(?) AS j CROSS JOIN delivery_queue AS v ON v.id = j.value ->> 1"
    " AND v.broker_message_id = j.value ->> 2"
    f" AND (v.lease_owner = j.value ->> 0 OR v.lease_owner IS NULL) {_MESSAGE}"
)
_ALL = f"FROM delivery_queue AS v {_MESSAGE}"


class DeliveryAck(Struct, frozen=True, array_like=True):
    owner: str
    id: int
    broker_message_id: str


def log_accepted(tx: Tx, message_ids: Sequence[str]) -> None:
    tx.execute(_ACCEPTED, (tx.now_ms, ACCEPTED, _json(message_ids)))


def log_sent(tx: Tx, ids: Sequence[int]) -> None:
    """Call after the attempts were counted."""
    tx.execute(f"{_DELIVERIES} {_LISTED}", (tx.now_ms, SENT, None, _json(ids)))


# -- ended attempts and deliveries: call before the rows are changed -------------------------------


def log_acked(tx: Tx, acks: Sequence[DeliveryAck]) -> None:
    """Log the acks that count. Each is for another delivery."""
    tx.execute(f"{_DELIVERIES} {_ACKS}", (tx.now_ms, ACKED, None, _json(acks)))


def log_released(tx: Tx, owner: str, ids: Sequence[int]) -> None:
    sql = f"{_DELIVERIES} {_LISTED} WHERE v.lease_owner = ?"
    tx.execute(sql, (tx.now_ms, FAILED, RELEASED, _json(ids), owner))


def log_expired(tx: Tx, ids: Sequence[int]) -> None:
    tx.execute(f"{_DELIVERIES} {_LISTED}", (tx.now_ms, FAILED, LEASE_EXPIRED, _json(ids)))


def log_restart(tx: Tx) -> None:
    """Log the end of all leases."""
    sql = f"{_DELIVERIES} {_ALL} WHERE v.lease_owner IS NOT NULL"
    tx.execute(sql, (tx.now_ms, FAILED, RESTARTED))


def log_without_message(tx: Tx, id_: int) -> None:
    """Log that a delivery's message is gone."""
    sql = f"{_DELIVERIES} {_ALL} WHERE v.id = ?"
    tx.execute(sql, (tx.now_ms, DEAD, MESSAGE_REMOVED, id_))


def log_dead_of_message(tx: Tx, message_id: str) -> None:
    """Log that the message is removed with its deliveries."""
    sql = f"{_DELIVERIES} {_ALL} WHERE v.broker_message_id = ?"
    tx.execute(sql, (tx.now_ms, DEAD, MESSAGE_REMOVED, message_id))


def log_dead_of_recipient(tx: Tx, mesh_id: str, recipient: str) -> None:
    """Log that the recipient is removed with its deliveries."""
    sql = f"{_DELIVERIES} {_ALL} WHERE v.mesh_id = ? AND v.recipient = ?"
    tx.execute(sql, (tx.now_ms, DEAD, RECIPIENT_REMOVED, mesh_id, recipient))


def _json(values: object) -> str:
    return msgspec.json.encode(values).decode()
