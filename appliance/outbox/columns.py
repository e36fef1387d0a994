"""The columns of the outbox table; those that can be null come last."""

from typing import Any, NamedTuple


class SendRow(NamedTuple):
    """One stored send. `next_attempt_at` and `accepted_steady_ms` are times of the steady clock."""

    id: str
    client_message_id: str
    request_fingerprint: bytes
    payload: bytes
    enqueued_at: int
    attempts: int
    next_attempt_at: int
    status: Any
    mesh: str
    target: str
    route: str
    destination_kind: Any
    destination_ref: str
    priority: Any
    last_error: str | None = None
    delivered_at: int | None = None
    broker_message_id: str | None = None
    aborted_at: int | None = None
    aborted_by: str | None = None
    superseded_by: str | None = None
    reply_to_id: str | None = None
    meta: str | None = None
    history_id: str | None = None
    died_at: int | None = None
    payload_dropped_at: int | None = None
    principal: str | None = None
    accepted_steady_ms: int = 0


COLUMNS = ", ".join(SendRow._fields)
