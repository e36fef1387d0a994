"""Scans the stores' texts for the files that they name, in slices of some milliseconds.

Every store counts, also one whose role is off. Texts that are written during a scan are read at its
end: they are in new rows, or in the hub's newest events. An older event is no reference, because
nothing can change the log.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec

from appliance.hub.named_files import named_in
from appliance.kernel import meta
from appliance.kernel.store_declaration import DECLARATIONS
from appliance.kernel.store_files import open_database
from appliance.workspace.datadir import DataDir

SLICE_ROWS = 2000  # that one statement reads
_LOG = ("events", ("data_json",))


class Slice(NamedTuple):
    """What one slice found. `position`: the row to continue after; None at the table's end."""

    named: set[str]
    position: int | None


class TextTable(msgspec.Struct):
    """A table's columns, and the last row that was read. `numbered`: whether rows have numbers;
    otherwise a slice is the whole table."""

    path: Path
    table: str
    columns: tuple[str, ...]
    numbered: bool
    position: int = 0

    def read(self) -> Slice:
        """Read the next slice. Raises sqlite3.Error."""
        with closing(open_database(self.path, "ro")) as connection:
            connection.text_factory = bytes
            if not self.numbered:
                return Slice(self._named(connection, "1"), None)
            last = self._last_row(connection)
            if last is None:
                return Slice(set(), None)
            between = f"rowid > {self.position} AND rowid <= {last}"
            return Slice(self._named(connection, between), last)

    def _last_row(self, connection: sqlite3.Connection) -> int | None:
        rows = f'SELECT rowid FROM "{self.table}" WHERE rowid > ? ORDER BY rowid LIMIT ?'
        row = connection.execute(
            f"SELECT max(rowid) FROM ({rows})", (self.position, SLICE_ROWS)
        ).fetchone()
        return None if row[0] is None else int(row[0])

    def _named(self, connection: sqlite3.Connection, where: str) -> set[str]:
        values = ", ".join(f'CAST("{column}" AS BLOB)' for column in self.columns)
        names = " OR ".join(
            f"instr(CAST(\"{column}\" AS BLOB), x'736861323536')" for column in self.columns
        )  # sha256
        rows = connection.execute(
            f'SELECT {values} FROM "{self.table}" WHERE {where} AND ({names})'
        )
        return {name for row in rows for text in row if text for name in named_in(text)}


class Scan:
    """One pass over all stores. `kept`: the wanted files, each with when it was last kept."""

    def __init__(self, datadir: DataDir, wanted: dict[str, int]) -> None:
        """Note the tables, and the hub's newest event. Raises sqlite3.Error."""
        self.wanted = wanted
        self.named: set[str] = set()
        self._tables = list(_tables(datadir))
        self._index = 0

    def advance(self) -> bool:
        """Read the next slice; return whether there are more. Raises sqlite3.Error."""
        if self._index < len(self._tables) and not self._read(self._tables[self._index]):
            self._index += 1
        return self._index < len(self._tables)

    def finish(self) -> None:
        """Read what was written since. Raises sqlite3.Error."""
        for table in self._tables:
            while self._read(table):
                pass

    def _read(self, table: TextTable) -> bool:
        found = table.read()
        self.named |= found.named & self.wanted.keys()
        if found.position is None:
            return False
        table.position = found.position
        return True


def _tables(datadir: DataDir) -> Iterator[TextTable]:
    for store, declared in DECLARATIONS.items():
        path = datadir.database(store)
        if not declared.texts or not path.exists():
            continue
        with closing(open_database(path, "ro")) as connection:
            for table, columns in declared.texts.items():
                if meta.exists(connection, table):
                    yield TextTable(path, table, columns, _has_numbers(connection, table))
            if declared.numbers_events:
                (newest,) = connection.execute("SELECT max(event_id) FROM events").fetchone()
                yield TextTable(path, *_LOG, numbered=True, position=newest or 0)


def _has_numbers(connection: sqlite3.Connection, table: str) -> bool:
    try:
        connection.execute(f'SELECT rowid FROM "{table}" LIMIT 0')
    except sqlite3.OperationalError:
        return False
    return True
