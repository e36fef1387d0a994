"""What durable streams remember: rows in SQLite, written in groups.

An envelope is a row before its producer hears that it was accepted. What happens to it
later (acked, failed, dead) is written a moment after: a crash in between delivers again
what was acked in the last moment, which is what at-least-once means. Leases are not
written: after a restart nobody holds anything.
"""

from collections.abc import Sequence
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from appliance.kernel.batch import Tx
from appliance.kernel.reader import Reader, open_connection
from appliance.kernel.store import Store

PAGE = 5_000

INSERT = (
    "INSERT INTO journal (stream, id, body, priority, key, accepted_ms, due_ms, expires_ms)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
STATEMENTS = {
    "gone": "DELETE FROM journal WHERE number = ?",
    "attempt": "UPDATE journal SET attempts = ?, failures = ?, due_ms = ? WHERE number = ?",
    "dead": "UPDATE journal SET attempts = ?, reason = ?, error = ? WHERE number = ?",
    "redrive": "UPDATE journal SET attempts = 0, failures = 0, due_ms = NULL, expires_ms = NULL,"
    " reason = NULL, error = '' WHERE number = ?",
}
Entry = tuple[str, str, bytes, int, str | None, int, int | None, int | None]
Change = tuple[Any, ...]


class Row:
    """A remembered envelope, as it is read at the start."""

    __slots__ = (
        "accepted_ms", "attempts", "body", "due_ms", "error", "expires_ms", "failures", "id",
        "key", "number", "priority", "reason", "stream",
    )  # fmt: skip

    def __init__(self, values: Sequence[Any]) -> None:
        (
            self.number, self.stream, self.id, self.body, self.priority, self.key,
            self.accepted_ms, self.due_ms, self.expires_ms, self.attempts, self.failures,
            self.reason, self.error,
        ) = values  # fmt: skip


class Journal:
    def __init__(self, store: Store) -> None:
        self._store = store

    def append(self, entries: Sequence[Entry]) -> list[int]:
        """Store them; their row numbers, once they are on disk."""
        return self._store.write(_append, entries)

    def apply(self, changes: Sequence[Change]) -> int:
        """What became of envelopes, in the order it happened."""
        return self._store.write(_apply, changes)

    def rows(self) -> list[Row]:
        """Everything remembered, in the order it was accepted."""
        found: list[Row] = []
        after = 0
        while True:
            page = self._store.read(_page, after)
            found += [Row(values) for values in page]
            if len(page) < PAGE:
                return found
            after = found[-1].number


def _append(tx: Tx, entries: Sequence[Entry]) -> list[int]:
    tx.executemany(INSERT, entries)
    # One writer, one statement after the other: the numbers of these rows are without a gap.
    last = int(tx.execute("SELECT last_insert_rowid()").fetchone()[0])
    return list(range(last - len(entries) + 1, last + 1))


def _apply(tx: Tx, changes: Sequence[Change]) -> int:
    for what, some in groupby(changes, key=itemgetter(0)):
        tx.executemany(STATEMENTS[what], [_values(tx, change) for change in some])
    return len(changes)


def _values(tx: Tx, change: Change) -> tuple[Any, ...]:
    if change[0] == "attempt":
        _, number, attempts, failures, delay_ms = change
        return (attempts, failures, tx.now_ms + int(delay_ms) if delay_ms else None, number)
    if change[0] == "dead":
        _, number, attempts, reason, error = change
        return (attempts, reason, error, number)
    return (change[1],)


def _page(reader: Reader, after: int) -> list[Any]:
    return reader.rows(
        "SELECT number, stream, id, body, priority, key, accepted_ms, due_ms, expires_ms,"
        " attempts, failures, reason, error FROM journal WHERE number > ? ORDER BY number",
        (after,),
        limit=PAGE,
    )


def remembers(path: Path) -> bool:
    """Does the journal hold envelopes, whatever the settings declare today?"""
    if not path.exists():
        return False
    with closing(open_connection(path, "FULL", query_only=True)) as connection:
        return connection.execute("SELECT 1 FROM journal LIMIT 1").fetchone() is not None
