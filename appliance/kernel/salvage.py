"""What can still be read of a damaged database, and a new file that it is put into.

A page that is damaged takes the rows on it, and no others: so ranges of rows are halved until
what can't be read is alone. Values of a unique column stand a second time in its index, on pages
of their own. For tables whose rows are numbered by SQLite and never deleted.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

ROW_BYTES_MIN = 64  # no row takes less of the file, so there are no more rows than that
_UNREADABLE = (sqlite3.DatabaseError, UnicodeError)


class Ruin:
    """A damaged file, opened to be read."""

    def __init__(self, connection: sqlite3.Connection, file_bytes: int) -> None:
        self._execute = connection.execute
        self._file_bytes = file_bytes

    def rows(self, table: str, names: Sequence[str], unique: str) -> Iterator[tuple[Any, ...]]:
        """Every row that can be read, in the order of insertion. `unique` names a column whose
        index may know how many there are."""
        columns = ", ".join(names)
        sql = f"SELECT rowid, {columns} FROM {table} WHERE rowid BETWEEN ? AND ? ORDER BY rowid"
        ranges = [(1, self._last_number(table, unique))]
        while ranges:
            first, last = ranges.pop()
            try:
                for row in self._execute(sql, (first, last)):
                    if not first <= row[0] <= last:  # or a range would never get smaller
                        raise sqlite3.DatabaseError("a row out of its place")
                    first = row[0] + 1
                    yield row[1:]
            except _UNREADABLE:
                if first < last:
                    middle = (first + last) // 2
                    ranges += [(middle + 1, last), (first, middle)]

    def columns(self, table: str, names: Sequence[str]) -> Sequence[str]:
        """Those of `names` that the table has; all of them if it can't be told."""
        try:
            found = {row[1] for row in self._execute(f"PRAGMA table_info({table})")}
        except _UNREADABLE:
            return names
        return [name for name in names if name in found] or names

    def values(self, table: str, column: str) -> dict[str, int]:
        """Texts of a unique column and the numbers of their rows. SQLite reads them in the index
        of that column alone; from both ends, each up to where it is damaged."""
        found: dict[str, int] = {}
        for order in ("ASC", "DESC"):
            sql = f"SELECT {column}, rowid FROM {table} ORDER BY {column} {order}"
            try:
                for value, number in self._execute(sql):
                    if isinstance(value, str):
                        found[value] = number
            except _UNREADABLE:
                continue
            break
        return found

    def _last_number(self, table: str, unique: str) -> int:
        """A number that no row is above."""
        try:
            row = self._execute(f"SELECT max(rowid) FROM {table}").fetchone()
            if isinstance(row[0], int):
                return row[0]
        except _UNREADABLE:
            pass
        return max([*self.values(table, unique).values(), self._file_bytes // ROW_BYTES_MIN])


class Refill:
    """A file being filled, in one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.execute = connection.execute

    def add(self, sql: str, row: Sequence[Any]) -> bool:
        """False where the row contradicts the schema: damage that could be read."""
        try:
            self.execute(sql, row)
        except sqlite3.Error:
            return False
        return True


@contextmanager
def opened(damaged: Path, made: Path) -> Iterator[tuple[Ruin, Refill]]:
    """Both files; at the end what was added to `made` is on the disk, without a log beside it."""
    with (
        closing(sqlite3.connect(made, isolation_level=None)) as target,
        closing(sqlite3.connect(damaged)) as source,
    ):
        # Else SQLite reads nothing of a file that was cut off.
        source.execute("PRAGMA writable_schema = ON")
        target.execute("PRAGMA synchronous = FULL")
        target.execute("BEGIN IMMEDIATE")
        yield Ruin(source, damaged.stat().st_size), Refill(target)
        target.execute("COMMIT")
        target.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    descriptor = os.open(made, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
