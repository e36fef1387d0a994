"""Rows of the courier's log: outcomes of envelopes. The writer process calls this."""

from collections.abc import Iterator, Sequence
from typing import Any

from appliance.courier.outcome_log import ACKED, DEAD, EXPIRED, Fact, Sample, failure
from appliance.kernel.batch import Tx

ROWS = 50  # in one statement: that costs half of one statement each
_INSERT = (
    "INSERT INTO log (at_ms, name, stream, durability, sample_rate, message_id, consumer, attempt,"
    " accepted_ms, delivered_ms, error)"
)
_ROW = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def log_outcomes(
    tx: Tx,
    changes: Sequence[tuple[Any, ...]],
    samples: Sequence[Sample],
    sample_rate: float,
    offset_ms: float,
) -> None:
    """`changes` are those of durable streams. `offset_ms`: the wall clock minus that of facts."""
    rows = [
        _row(offset_ms, name, error, fact, "durable", 1.0)
        for name, error, fact in _outcomes(changes)
    ]
    rows += [
        _row(offset_ms, name, error, fact, "memory", sample_rate) for name, error, fact in samples
    ]
    for start in range(0, len(rows), ROWS):
        part = rows[start : start + ROWS]
        marks = ", ".join([_ROW] * len(part))
        tx.execute(f"{_INSERT} VALUES {marks}", [value for row in part for value in row])


def _outcomes(changes: Sequence[tuple[Any, ...]]) -> Iterator[Sample]:
    for change in changes:
        kind, fact = change[0], change[-1]
        if kind not in ("acked", "failed_attempt", "expired", "dead") or fact is None:
            continue
        if kind == "failed_attempt":
            name, error = failure(*change[4:6])
            yield name, error or None, fact
        elif kind == "dead":
            yield DEAD, change[3], fact
        else:
            yield (ACKED if kind == "acked" else EXPIRED), None, fact


def _row(
    offset_ms: float, name: str, error: str | None, fact: Fact, durability: str, rate: float
) -> tuple[Any, ...]:
    stream, id_, consumer, attempt, at, accepted, delivered = fact
    delivered_ms = None if delivered is None else round(offset_ms + delivered)
    return (
        *(round(offset_ms + at), name, stream, durability, rate, id_, consumer, attempt),
        *(round(offset_ms + accepted), delivered_ms, error),
    )
