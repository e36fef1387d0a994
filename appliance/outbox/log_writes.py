"""Writes the outbox's log: acceptances, attempts, and how sends end.

Rows are written in the transactions that change the state, so a row is there exactly if the change
is. Where a function says so, call it before the sends change. A batch's rows are one statement.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from appliance.kernel.batch import Tx

ACCEPTED, DIED, ABORTED, REDRIVEN = "send.accepted", "send.dead", "send.aborted", "send.requeued"
DELIVERED, FAILED = "attempt.delivered", "attempt.failed"

_INSERT = (
    "INSERT INTO log (at_ms, name, message_id, client_message_id, mesh, target, route,"
    " destination_kind, destination_ref, priority, principal, attempt, accepted_ms,"
    " broker_message_id, error)"
)
_SEND = (
    "s.id, s.client_message_id, s.mesh, s.target, s.route, s.destination_kind, s.destination_ref,"
    " s.priority, s.principal"
)
# The row counts an attempt after its failure.
_ENDS = (
    f"{_INSERT} SELECT ?, j.value ->> 1, {_SEND}, s.attempts + (j.value ->> 2), s.enqueued_at,"
    " j.value ->> 3, j.value ->> 4 FROM json_each(?) AS j CROSS JOIN outbox AS s"
    " ON s.id = j.value ->> 0"
)
_INTERRUPTED = (
    f"{_INSERT} SELECT ?, ?, {_SEND}, s.attempts + 1, s.enqueued_at, NULL, ? FROM outbox AS s"
    " WHERE s.status = 'inflight' AND s.id NOT IN (SELECT value FROM json_each(?))"
)


class SendEvent(Struct, frozen=True, array_like=True):
    """Something that happened to one send. `attempt`: 1 for the attempt that ends now; None
    for other events."""

    id: str
    name: str
    attempt: int | None = None
    broker_message_id: str | None = None
    error: str | None = None


def log_events(tx: Tx, events: Sequence[SendEvent]) -> None:
    """Log attempts; call before the sends change."""
    if events:
        tx.execute(_ENDS, (tx.now_ms, _json(events)))


def log_attempts(tx: Tx, events: Sequence[SendEvent]) -> None:
    """Log attempts only for sends in flight. Call before they change."""
    if events:
        tx.execute(f"{_ENDS} WHERE s.status = 'inflight'", (tx.now_ms, _json(events)))


def log_interrupted(tx: Tx, reason: str, in_flight: Sequence[str]) -> None:
    """Log the attempts for all sends in flight, but not in `in_flight`. Call before they change."""
    tx.execute(_INTERRUPTED, (tx.now_ms, FAILED, reason, _json(in_flight)))


def _json(values: object) -> str:
    return msgspec.json.encode(values).decode()
