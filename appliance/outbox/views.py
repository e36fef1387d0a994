"""Sends as they are shown. Pure."""

from typing import Any

import msgspec

from appliance.kernel.clock import iso
from appliance.outbox import destination, states, wire
from appliance.outbox.columns import Row

_decode = msgspec.json.Decoder().decode


def message_of(row: Row) -> str | None:
    return None if row.payload_dropped_at is not None else bytes(row.payload).decode()


def meta_of(row: Row) -> dict[str, Any] | None:
    found: dict[str, Any] | None = None if row.meta is None else _decode(row.meta)
    return found


def shown(row: Row) -> wire.OutboxRow:
    def at(ms: int | None) -> str | None:
        return None if ms is None else iso(ms)

    return wire.OutboxRow(
        id=row.id,
        client_message_id=row.client_message_id,
        fingerprint=bytes(row.request_fingerprint).hex(),
        status=row.status,  # type: ignore[arg-type]
        mesh=row.mesh,
        target=row.target,
        to=destination.shown(row.destination_kind, row.destination_ref),
        priority=row.priority,
        reply_to_id=row.reply_to_id,
        attempts=row.attempts,
        enqueued_at=iso(row.enqueued_at),
        next_attempt_at=at(row.next_attempt_at) if row.status == states.PENDING else None,
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
    )
