"""Writes the journal. The writer process calls these functions by name, so this module imports
neither an event loop nor a store."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from msgspec.structs import astuple

from appliance.courier.change import (
    AttemptFailed,
    EnvelopeAcked,
    EnvelopeAppended,
    EnvelopeDead,
    EnvelopeExpired,
    EnvelopeGone,
    EnvelopeRedriven,
    EnvelopeReturned,
    JournalBatch,
    LatestDropped,
    StreamForgotten,
    StreamPaused,
    StreamResumed,
)
from appliance.courier.log_writes import log_outcomes
from appliance.kernel.batch import Tx

INSERT = (
    "INSERT INTO journal (number, stream, id, body, priority, key, accepted_ms, due_ms, expires_ms)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
# Inserts with numbers up to an AUTOINCREMENT key's sequence don't write the sequence.
RESERVE = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'journal'"
DELETE = "DELETE FROM journal WHERE number = ?"
INSERT_ACKED = (
    "INSERT OR REPLACE INTO acked (stream, slot, place, id, at_ms) VALUES (?, ?, ?, ?, ?)"
)
UPDATE_ATTEMPTS = "UPDATE journal SET attempts = ?, failures = ?, due_ms = ? WHERE number = ?"
# If a lease and a purge overlap, the envelope can be deleted before the attempt is written. Then
# nothing is inserted.
INSERT_ATTEMPT = (
    "INSERT INTO attempts (number, slot, at_ms, holder, outcome, error)"
    " SELECT number, (SELECT coalesce(max(slot), 0) + 1 FROM attempts WHERE number = ?1),"
    " ?2, ?3, ?4, ?5 FROM journal WHERE number = ?1"
)
DELETE_OLD_ATTEMPTS = (
    "DELETE FROM attempts WHERE number = ?1"
    " AND slot <= (SELECT max(slot) FROM attempts WHERE number = ?1) - ?2"
)
# A dead letter's `due_ms` is the time of its dead-lettering.
UPDATE_DEAD = "UPDATE journal SET due_ms = ?, attempts = ?, reason = ?, error = ? WHERE number = ?"
UPDATE_REDRIVEN = (
    "UPDATE journal SET attempts = 0, failures = 0, due_ms = NULL, expires_ms = NULL,"
    " reason = NULL, error = '' WHERE number = ?"
)
INSERT_PAUSE = "INSERT OR REPLACE INTO paused (stream, until_ms) VALUES (?, ?)"
DELETE_PAUSE = "DELETE FROM paused WHERE stream = ?"
DELETE_ACKED = "DELETE FROM acked WHERE stream = ?"
INSERT_LATEST = "INSERT OR REPLACE INTO latest (stream, body, at_ms) VALUES (?, ?, ?)"
DELETE_LATEST = "DELETE FROM latest WHERE stream = ?"


def append(
    tx: Tx, entries: Sequence[EnvelopeAppended], is_inbox: bool, first: int, reserve: int
) -> list[int]:
    """Store one stream's envelopes as rows from `first` on. Return their numbers. An inbox's
    last envelope becomes its latest. `reserve`: the new sequence, unless 0."""
    rows = list(range(first, first + len(entries)))
    tx.executemany(
        INSERT, [(row, *astuple(entry)) for row, entry in zip(rows, entries, strict=True)]
    )
    if reserve:
        tx.execute(RESERVE, (reserve,))
    if is_inbox:
        tx.execute(INSERT_LATEST, (entries[-1].stream, entries[-1].body, tx.steady_ms))
    return rows


def apply(tx: Tx, batch: JournalBatch) -> int:
    """Write a JournalBatch's changes and outcomes."""
    for kind, group in groupby(batch.changes, key=type):
        APPLY[kind](tx, list(group))
    log_outcomes(tx, batch)
    return len(batch.changes) + len(batch.journaled) + len(batch.samples)


def prune(tx: Tx, recent_ms: int) -> int:
    """Delete ids that were acked more than `recent_ms` ago, and pauses that are over."""
    now_ms = tx.steady_ms
    tx.execute("DELETE FROM paused WHERE until_ms <= ?", (now_ms,))
    return tx.execute("DELETE FROM acked WHERE at_ms < ?", (now_ms - recent_ms,)).rowcount


def _ack(tx: Tx, acks: list[EnvelopeAcked]) -> None:
    now_ms = tx.steady_ms
    tx.executemany(DELETE, [(ack.row,) for ack in acks])
    tx.executemany(
        INSERT_ACKED,
        [
            (ack.stream, ack.ordinal % ack.limit, ack.ordinal, ack.id, now_ms)
            for ack in acks
            if ack.limit
        ],
    )


def _make_ready(tx: Tx, changes: list[EnvelopeReturned]) -> None:
    now_ms = tx.steady_ms
    tx.executemany(
        UPDATE_ATTEMPTS,
        [
            (change.attempts, change.failures, _later(now_ms, change.delay_ms or None), change.row)
            for change in changes
        ],
    )


def _fail_attempt(tx: Tx, attempts: list[AttemptFailed]) -> None:
    now_ms, kept = tx.steady_ms, [attempt for attempt in attempts if attempt.limit]
    tx.executemany(
        INSERT_ATTEMPT,
        [(entry.row, now_ms, entry.consumer, entry.outcome, entry.error) for entry in kept],
    )
    tx.executemany(DELETE_OLD_ATTEMPTS, [(attempt.row, attempt.limit) for attempt in kept])


def _mark_dead(tx: Tx, changes: list[EnvelopeDead]) -> None:
    now_ms = tx.steady_ms
    tx.executemany(
        UPDATE_DEAD,
        [(now_ms, change.attempts, change.reason, change.error, change.row) for change in changes],
    )


def _pause(tx: Tx, pauses: list[StreamPaused]) -> None:
    now_ms = tx.steady_ms
    tx.executemany(
        INSERT_PAUSE, [(pause.stream, _later(now_ms, pause.left_ms)) for pause in pauses]
    )


def _later(now_ms: int, delay_ms: float | None) -> int | None:
    return None if delay_ms is None else now_ms + int(delay_ms)


def _execute_with(sql: str) -> Callable[[Tx, list[Any]], None]:
    """Make a write for changes whose fields are the parameters."""

    def run(tx: Tx, changes: list[Any]) -> None:
        tx.executemany(sql, [astuple(change) for change in changes])

    return run


APPLY: dict[type, Callable[[Tx, list[Any]], None]] = {
    EnvelopeGone: _execute_with(DELETE),
    EnvelopeAcked: _ack,
    EnvelopeReturned: _make_ready,
    AttemptFailed: _fail_attempt,
    EnvelopeDead: _mark_dead,
    EnvelopeExpired: lambda _tx, _changes: None,
    EnvelopeRedriven: _execute_with(UPDATE_REDRIVEN),
    StreamPaused: _pause,
    StreamResumed: _execute_with(DELETE_PAUSE),
    StreamForgotten: _execute_with(DELETE_ACKED),
    LatestDropped: _execute_with(DELETE_LATEST),
}
