"""Stored sends as wire structs, and their sizes in a response. Pure."""

from typing import Any

import msgspec

from appliance.kernel.clock import iso
from appliance.kernel.log import without_path
from appliance.outbox import destination, ordering, states, wire
from appliance.outbox.rows import SendRow

ROW_OVERHEAD_BYTES = 100  # each row's share in a page's rest

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def message_of(row: SendRow) -> str | None:
    return None if row.payload_dropped_at is not None else bytes(row.payload).decode()


def meta_of(row: SendRow) -> dict[str, Any] | None:
    meta: dict[str, Any] | None = None if row.meta is None else _decode(row.meta)
    return meta


def to_wire(row: SendRow, ahead_ms: int = 0) -> wire.OutboxRow:
    """Convert a row. `ahead_ms`: by how much the wall clock is ahead of the steady clock."""

    def at(ms: int | None) -> str | None:
        return None if ms is None else iso(ms)

    return wire.OutboxRow(
        id=row.id,
        client_message_id=row.client_message_id,
        fingerprint=bytes(row.request_fingerprint).hex(),
        status=row.status,
        mesh=row.mesh,
        target=row.target,
        to=without_path(destination.to_text(row.destination_kind, row.destination_ref)),
        priority=row.priority,
        reply_to_id=row.reply_to_id,
        attempts=row.attempts,
        enqueued_at=iso(row.enqueued_at),
        next_attempt_at=(
            iso(row.next_attempt_at + ahead_ms) if row.status == states.PENDING else None
        ),
        last_error=row.last_error,
        delivered_at=at(row.delivered_at),
        broker_message_id=row.broker_message_id,
        history_id=row.history_id,
        died_at=at(row.died_at),
        aborted_at=at(row.aborted_at),
        aborted_by=row.aborted_by,
        superseded_by=row.superseded_by,
        payload_kept=row.payload_dropped_at is None,
        payload_bytes=len(row.payload),
        principal=row.principal,
        traceparent=row.traceparent,
        route=ordering.without_order(row.route),
    )


def row_bytes(row: wire.OutboxRow) -> int:
    return len(_encode(row)) + ROW_OVERHEAD_BYTES
