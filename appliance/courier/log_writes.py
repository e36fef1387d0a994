"""Writes the courier's log: envelope outcomes. The writer process calls this."""

from typing import Any

from appliance.courier.change import EnvelopeOutcome, JournalBatch
from appliance.kernel.batch import Tx

ROWS = 50  # in one statement, at half the cost of one statement each
_INSERT = (
    "INSERT INTO log (at_ms, name, stream, durability, sample_rate, message_id, consumer, attempt,"
    " accepted_ms, delivered_ms, error)"
)
_ROW = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def log_outcomes(tx: Tx, batch: JournalBatch) -> None:
    rows = [_row(batch.offset_ms, outcome, "durable", 1.0) for outcome in batch.journaled]
    rows += [_row(batch.offset_ms, sample, "memory", batch.sample_rate) for sample in batch.samples]
    for start in range(0, len(rows), ROWS):
        part = rows[start : start + ROWS]
        marks = ", ".join([_ROW] * len(part))
        tx.execute(f"{_INSERT} VALUES {marks}", [value for row in part for value in row])


def _row(offset_ms: float, log: EnvelopeOutcome, durability: str, rate: float) -> tuple[Any, ...]:
    delivered_ms = None if log.delivered_ms is None else round(offset_ms + log.delivered_ms)
    return (
        *(round(offset_ms + log.at_ms), log.name, log.stream, durability, rate, log.id),
        *(log.consumer, log.attempt, round(offset_ms + log.accepted_ms), delivered_ms, log.error),
    )
