"""Reads receipts: each recipient's state for a message."""

from collections.abc import Sequence
from typing import Any

from appliance.hub.events import encode
from appliance.hub.recipients import LastAcknowledged, MessageReceipt
from appliance.kernel.batch import Tx
from appliance.kernel.clock import iso
from appliance.kernel.meta import Executor

RECEIPTS_MAX = 200  # more than `to`, `@` and followers can add up to
BEFORE_MAX = 1000
WAKING_UNKNOWN = "unknown"
_BEFORE = (
    "(SELECT count(*) FROM (SELECT 1 FROM x_entries AS b WHERE b.name = e.name"
    f" AND b.settled_at IS NULL AND b.position < e.position LIMIT {BEFORE_MAX}))"
)
_RECEIPTS = (
    "SELECT e.id, e.name, e.reason, e.state, e.stored_at, e.listed_at, e.settled_at,"
    f" e.declined_because, e.due_steady_ms, e.overdue_at, {_BEFORE}, i.acknowledged_id,"
    " i.acknowledged_at, i.seen_at, i.waking FROM x_entries AS e JOIN x_inboxes AS i"
    f" ON i.name = e.name WHERE e.message_id = ? ORDER BY e.id LIMIT {RECEIPTS_MAX}"
)


def receipts_of(reader: Executor, message_id: str, ahead_ms: int) -> list[MessageReceipt]:
    """Return a message's receipts. `ahead_ms`: the wall clock's lead over the steady clock."""
    return [_receipt(row, ahead_ms) for row in reader.execute(_RECEIPTS, (message_id,)).fetchall()]


def reply_part(tx: Tx, message_id: str, unknown: Sequence[str]) -> bytes:
    """Return a post's receipts as a part of the reply, without followers."""
    receipts = [
        receipt
        for receipt in receipts_of(tx, message_id, tx.now_ms - tx.steady_ms)
        if receipt.reason != "follow"
    ]
    part = b',"receipts":%b' % encode(receipts) if receipts else b""
    return part + (b',"unknown":%b' % encode(unknown) if unknown else b"")


def _receipt(row: Sequence[Any], ahead_ms: int) -> MessageReceipt:
    (
        number, name, reason, state, stored_at, listed_at, settled_at, because, due, overdue_at,
        before, acknowledged_id, acknowledged_at, seen_at, waking,
    ) = row  # fmt: skip
    last = None
    if acknowledged_id is not None:
        last = LastAcknowledged(acknowledged_id, acknowledged_at)
    return MessageReceipt(
        number, name, reason, state, stored_at, listed_at, settled_at, because,
        None if due is None else iso(due + ahead_ms), overdue_at, before, last, seen_at,
        waking or WAKING_UNKNOWN,
    )  # fmt: skip
