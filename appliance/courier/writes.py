"""Writes of the journal. The writer process calls these functions by name, so this module imports
neither an event loop nor a store."""

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from appliance.courier.log_writes import log_outcomes
from appliance.courier.outcome_log import Sample
from appliance.kernel.batch import Tx

Entry = tuple[str, str, bytes, int, str | None, int, int | None, int | None]
Change = tuple[Any, ...]

INSERT = (
    "INSERT INTO journal (number, stream, id, body, priority, key, accepted_ms, due_ms, expires_ms)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
# Inserts with numbers up to the sequence of an AUTOINCREMENT key don't write the sequence.
RESERVE = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'journal'"
DELETE = "DELETE FROM journal WHERE number = ?"
INSERT_ACKED = (
    "INSERT OR REPLACE INTO acked (stream, slot, place, id, at_ms) VALUES (?, ?, ?, ?, ?)"
)
UPDATE_ATTEMPTS = "UPDATE journal SET attempts = ?, failures = ?, due_ms = ? WHERE number = ?"
# If a lease and a purge overlap, the envelope can be deleted before its attempt is written. Then
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
# `due_ms` of a dead letter is the time at which it became one.
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
    tx: Tx, entries: Sequence[Entry], is_inbox: bool, first: int, reserve: int = 0
) -> list[int]:
    """Store envelopes of one stream as rows from `first` on. Returns their numbers. The last
    envelope of an inbox becomes its latest. `reserve`: set the sequence to this number."""
    rows = list(range(first, first + len(entries)))
    tx.executemany(INSERT, [(row, *entry) for row, entry in zip(rows, entries, strict=True)])
    if reserve:
        tx.execute(RESERVE, (reserve,))
    if is_inbox:
        stream, _, body, *_ = entries[-1]
        tx.execute(INSERT_LATEST, (stream, body, tx.steady_ms))
    return rows


def apply(
    tx: Tx,
    changes: Sequence[Change],
    journaled: Sequence[Change],
    samples: Sequence[Sample],
    sample_rate: float,
    offset_ms: float,
) -> int:
    """Write changes of envelopes and streams, in the order they happened, and the outcomes of
    `journaled`, which were written before, into the log. `offset_ms`: the wall clock minus the
    monotonic clock, which the outcomes have."""
    for kind, group in groupby(changes, key=itemgetter(0)):
        APPLY[kind](tx, [change[1:] for change in group])
    log_outcomes(tx, journaled, samples, sample_rate, offset_ms)
    return len(changes) + len(journaled) + len(samples)


def prune(tx: Tx, recent_ms: int) -> int:
    """Delete ids that were acked more than `recent_ms` ago, and pauses that are over."""
    now_ms = tx.steady_ms
    tx.execute("DELETE FROM paused WHERE until_ms <= ?", (now_ms,))
    return tx.execute("DELETE FROM acked WHERE at_ms < ?", (now_ms - recent_ms,)).rowcount


def _acked(tx: Tx, rows: list[Change]) -> None:
    now_ms = tx.steady_ms
    tx.executemany(DELETE, [(number,) for number, *_ in rows])
    tx.executemany(
        INSERT_ACKED,
        [
            (stream, ordinal % limit, ordinal, id_, now_ms)
            for _, stream, ordinal, limit, id_, _ in rows
            if limit
        ],
    )


def _returned(tx: Tx, rows: list[Change]) -> None:
    now = tx.steady_ms
    tx.executemany(
        UPDATE_ATTEMPTS,
        [
            (attempts, failures, now + int(delay_ms) if delay_ms else None, number)
            for number, attempts, failures, delay_ms in rows
        ],
    )


def _failed_attempt(tx: Tx, rows: list[Change]) -> None:
    """With a limit of 0 only the log has it."""
    now_ms, kept = tx.steady_ms, [row[:-1] for row in rows if row[1]]
    tx.executemany(INSERT_ATTEMPT, [(number, now_ms, *attempt) for number, _, *attempt in kept])
    tx.executemany(DELETE_OLD_ATTEMPTS, [(number, limit) for number, limit, *_ in kept])


def _dead(tx: Tx, rows: list[Change]) -> None:
    now_ms = tx.steady_ms
    tx.executemany(UPDATE_DEAD, [(now_ms, *values, number) for number, *values, _ in rows])


def _paused(tx: Tx, rows: list[Change]) -> None:
    now_ms = tx.steady_ms
    tx.executemany(
        INSERT_PAUSE,
        [(stream, None if left_ms is None else now_ms + int(left_ms)) for stream, left_ms in rows],
    )


def _expired(_tx: Tx, _rows: list[Change]) -> None:
    """Another change says what became of the envelope."""


def _each(sql: str) -> Callable[[Tx, list[Change]], None]:
    def run(tx: Tx, rows: list[Change]) -> None:
        tx.executemany(sql, rows)

    return run


APPLY: dict[str, Callable[[Tx, list[Change]], None]] = {
    "gone": _each(DELETE),
    "acked": _acked,
    "returned": _returned,
    "failed_attempt": _failed_attempt,
    "dead": _dead,
    "expired": _expired,
    "redrive": _each(UPDATE_REDRIVEN),
    "paused": _paused,
    "resumed": _each(DELETE_PAUSE),
    "forgotten": _each(DELETE_ACKED),
    "unseen": _each(DELETE_LATEST),
}
