"""Generated from the migrations of the outbox by `just models`: its rows as tuples."""

from typing import Literal, NamedTuple


class SendRow(NamedTuple):
    """A row in `outbox`."""

    id: str
    client_message_id: str
    request_fingerprint: bytes
    payload: bytes
    enqueued_at: int
    attempts: int
    next_attempt_at: int
    status: Literal["pending", "inflight", "done", "dead", "aborted"]
    last_error: str | None
    delivered_at: int | None
    broker_message_id: str | None
    aborted_at: int | None
    aborted_by: str | None
    superseded_by: str | None
    mesh: str
    target: str
    route: str
    destination_kind: Literal["topic", "dm", "queue"]
    destination_ref: str
    reply_to_id: str | None
    priority: Literal["now", "next", "low"]
    meta: str | None
    history_id: str | None
    died_at: int | None
    payload_dropped_at: int | None
    principal: str | None
    accepted_steady_ms: int
    traceparent: str | None
