"""What durable streams remember: rows in SQLite, written in groups.

An envelope is a row before its producer hears that it was accepted. What happens to it
later (acked, failed, dead) is written a moment after: a crash in between delivers again
what was acked in the last moment, which is what at-least-once means. Leases are not
written: after a restart nobody holds anything.
"""

from collections.abc import Sequence
from contextlib import closing
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
    numbers: list[int] = []
    for entry in entries:
        number = tx.execute(INSERT, entry).lastrowid
        assert number is not None
        numbers.append(number)
    return numbers


def _apply(tx: Tx, changes: Sequence[Change]) -> int:
    for change in changes:
        what, number = change[0], change[1]
        if what == "gone":
            tx.execute("DELETE FROM journal WHERE number = ?", (number,))
        elif what == "attempt":
            _, _, attempts, failures, delay_ms = change
            tx.execute(
                "UPDATE journal SET attempts = ?, failures = ?, due_ms = ? WHERE number = ?",
                (attempts, failures, tx.now_ms + int(delay_ms) if delay_ms else None, number),
            )
        elif what == "dead":
            _, _, attempts, reason, error = change
            tx.execute(
                "UPDATE journal SET attempts = ?, reason = ?, error = ? WHERE number = ?",
                (attempts, reason, error, number),
            )
        elif what == "redrive":
            tx.execute(
                "UPDATE journal SET attempts = 0, failures = 0, due_ms = NULL, expires_ms = NULL,"
                " reason = NULL, error = '' WHERE number = ?",
                (number,),
            )
    return len(changes)


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
