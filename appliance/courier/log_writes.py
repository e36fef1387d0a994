"""Rows of the courier's log: outcomes of envelopes. The writer process calls this."""

from typing import Any

from appliance.courier.change import (
    AttemptFailed,
    EnvelopeAcked,
    EnvelopeDead,
    Fact,
    JournalBatch,
    Outcome,
)
from appliance.courier.outcome_log import ACKED, DEAD, EXPIRED, death, failure
from appliance.kernel.batch import Tx

ROWS = 50  # in one statement: that costs half of one statement each
_INSERT = (
    "INSERT INTO log (at_ms, name, stream, durability, sample_rate, message_id, consumer, attempt,"
    " accepted_ms, delivered_ms, error)"
)
_ROW = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def log_outcomes(tx: Tx, batch: JournalBatch) -> None:
    rows = [
        _row(batch.offset_ms, *_name_and_error(change), change.fact, "durable", 1.0)
        for change in batch.journaled
        if change.fact is not None
    ]
    rows += [
        _row(batch.offset_ms, *sample, "memory", batch.sample_rate) for sample in batch.samples
    ]
    for start in range(0, len(rows), ROWS):
        part = rows[start : start + ROWS]
        marks = ", ".join([_ROW] * len(part))
        tx.execute(f"{_INSERT} VALUES {marks}", [value for row in part for value in row])


def _name_and_error(change: Outcome) -> tuple[str, str | None]:
    match change:
        case AttemptFailed():
            name, error = failure(change.outcome, change.error)
            return name, error or None
        case EnvelopeDead():
            return DEAD, death(change.reason, change.error)
        case EnvelopeAcked():
            return ACKED, None
    return EXPIRED, None


def _row(
    offset_ms: float, name: str, error: str | None, fact: Fact, durability: str, rate: float
) -> tuple[Any, ...]:
    stream, id_, consumer, attempt, at, accepted, delivered = fact
    delivered_ms = None if delivered is None else round(offset_ms + delivered)
    return (
        *(round(offset_ms + at), name, stream, durability, rate, id_, consumer, attempt),
        *(round(offset_ms + accepted), delivered_ms, error),
    )
