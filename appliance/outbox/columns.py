"""One row of the outbox as it is stored, column by column."""

from typing import Any, NamedTuple


class Row(NamedTuple):
    """One send as it is stored."""

    id: str
    client_message_id: str
    request_fingerprint: bytes
    payload: bytes
    enqueued_at: int
    attempts: int
    next_attempt_at: int
    status: str
    last_error: str | None
    delivered_at: int | None
    broker_message_id: str | None
    aborted_at: int | None
    aborted_by: str | None
    superseded_by: str | None
    mesh: str
    target: str
    route: str
    destination_kind: Any
    destination_ref: str
    reply_to_id: str | None
    priority: Any
    meta: str | None
    history_id: str | None
    died_at: int | None
    payload_dropped_at: int | None
    principal: str | None = None


COLUMNS = ", ".join(Row._fields)
