"""What the journal's writer does. Its functions travel to the writer's process by name, so
this module imports neither an event loop nor a store."""

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from appliance.kernel.batch import Tx

Entry = tuple[str, str, bytes, int, str | None, int, int | None, int | None]
Change = tuple[Any, ...]

INSERT = (
    "INSERT INTO journal (number, stream, id, body, priority, key, accepted_ms, due_ms, expires_ms)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
# The sequence of an AUTOINCREMENT key: what lies below it is inserted without writing it.
RESERVE = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'journal'"
GONE = "DELETE FROM journal WHERE number = ?"
ACKED = "INSERT OR REPLACE INTO acked (stream, slot, place, id, at_ms) VALUES (?, ?, ?, ?, ?)"
ATTEMPT = "UPDATE journal SET attempts = ?, failures = ?, due_ms = ? WHERE number = ?"
# The journal forgets an envelope while an attempt of it is still to be written, if a lease
# and a purge cross: then there is nothing to tell.
TRIED = (
    "INSERT INTO attempts (number, slot, at_ms, holder, outcome, error)"
    " SELECT number, (SELECT coalesce(max(slot), 0) + 1 FROM attempts WHERE number = ?1),"
    " ?2, ?3, ?4, ?5 FROM journal WHERE number = ?1"
)
TRIED_BEFORE = (
    "DELETE FROM attempts WHERE number = ?1"
    " AND slot <= (SELECT max(slot) FROM attempts WHERE number = ?1) - ?2"
)
# `due_ms` of a dead letter is when it died.
DEAD = "UPDATE journal SET due_ms = ?, attempts = ?, reason = ?, error = ? WHERE number = ?"
REDRIVE = (
    "UPDATE journal SET attempts = 0, failures = 0, due_ms = NULL, expires_ms = NULL,"
    " reason = NULL, error = '' WHERE number = ?"
)
PAUSED = "INSERT OR REPLACE INTO paused (stream, until_ms) VALUES (?, ?)"
RESUMED = "DELETE FROM paused WHERE stream = ?"
FORGOTTEN = "DELETE FROM acked WHERE stream = ?"
LATEST = "INSERT OR REPLACE INTO latest (stream, body, at_ms) VALUES (?, ?, ?)"
UNSEEN = "DELETE FROM latest WHERE stream = ?"


def append(
    tx: Tx, entries: Sequence[Entry], is_inbox: bool, first: int, reserve: int = 0
) -> list[int]:
    """Store envelopes of one stream as rows `first` and following; their numbers. The last into
    an inbox is its latest. `reserve`: numbers up to this one are given out from now on."""
    rows = list(range(first, first + len(entries)))
    tx.executemany(INSERT, [(row, *entry) for row, entry in zip(rows, entries, strict=True)])
    if reserve:
        tx.execute(RESERVE, (reserve,))
    if is_inbox:
        stream, _, body, *_ = entries[-1]
        tx.execute(LATEST, (stream, body, tx.now_ms))
    return rows


def apply(tx: Tx, changes: Sequence[Change]) -> int:
    """What became of envelopes and streams, in the order it happened."""
    for what, some in groupby(changes, key=itemgetter(0)):
        APPLY[what](tx, [change[1:] for change in some])
    return len(changes)


def prune(tx: Tx, before_ms: int) -> int:
    """Acked ids that no window reaches any more, and pauses that are over."""
    tx.execute("DELETE FROM paused WHERE until_ms <= ?", (tx.now_ms,))
    return tx.execute("DELETE FROM acked WHERE at_ms < ?", (before_ms,)).rowcount


def _acked(tx: Tx, rows: list[Change]) -> None:
    tx.executemany(GONE, [(number,) for number, *_ in rows])
    tx.executemany(
        ACKED,
        [
            (stream, place % most, place, id_, tx.now_ms)
            for _, stream, place, most, id_ in rows
            if most
        ],
    )


def _attempt(tx: Tx, rows: list[Change]) -> None:
    now = tx.now_ms
    tx.executemany(
        ATTEMPT,
        [
            (attempts, failures, now + int(delay_ms) if delay_ms else None, number)
            for number, attempts, failures, delay_ms in rows
        ],
    )


def _tried(tx: Tx, rows: list[Change]) -> None:
    tx.executemany(TRIED, [(number, tx.now_ms, *said) for number, _, *said in rows])
    tx.executemany(TRIED_BEFORE, [(number, most) for number, most, *_ in rows])


def _dead(tx: Tx, rows: list[Change]) -> None:
    tx.executemany(DEAD, [(tx.now_ms, *values, number) for number, *values in rows])


def _paused(tx: Tx, rows: list[Change]) -> None:
    tx.executemany(
        PAUSED,
        [
            (stream, None if left_ms is None else tx.now_ms + int(left_ms))
            for stream, left_ms in rows
        ],
    )


def _each(sql: str) -> Callable[[Tx, list[Change]], None]:
    def run(tx: Tx, rows: list[Change]) -> None:
        tx.executemany(sql, rows)

    return run


APPLY: dict[str, Callable[[Tx, list[Change]], None]] = {
    "gone": _each(GONE),
    "acked": _acked,
    "attempt": _attempt,
    "tried": _tried,
    "dead": _dead,
    "redrive": _each(REDRIVE),
    "paused": _paused,
    "resumed": _each(RESUMED),
    "forgotten": _each(FORGOTTEN),
    "unseen": _each(UNSEEN),
}
