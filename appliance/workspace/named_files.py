"""Scans the stores' texts for files that they name, as `sha256:HEX`, in short slices.

Every store counts, also a store whose role is off. A scan ends with the texts written meanwhile:
these are in new rows, or in the hub's newest events. Older events keep no file, because the log
can't be changed.
"""

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec

from appliance.kernel import meta
from appliance.kernel.store_declaration import DECLARATIONS
from appliance.kernel.store_files import open_database
from appliance.workspace.datadir import DataDir

SLICE_ROWS = 2000  # that one statement reads
_NAME = re.compile(rb"sha256[:-]([0-9a-f]{64})(?![0-9a-f])")
_LOG = ("events", ("data_json",))
_SHA256 = "x'736861323536'"  # the text `sha256`, as bytes


def named_in(text: bytes) -> set[str]:
    """Return the hashes that a text names: files, and worker bus payloads as `sha256-HEX`."""
    return {name.decode() for name in _NAME.findall(text)}


class Slice(NamedTuple):
    """The hashes in one slice. `position`: the row to continue after; None at the table's end."""

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
                return Slice(self._find_named(connection, ""), None)
            last = self._last_row(connection)
            if last is None:
                return Slice(set(), None)
            return Slice(self._find_named(connection, "rowid > ? AND rowid <= ? AND", last), last)

    def _last_row(self, connection: sqlite3.Connection) -> int | None:
        query = f'SELECT rowid FROM "{self.table}" WHERE rowid > ? ORDER BY rowid LIMIT ?'
        limits = (self.position, SLICE_ROWS)
        (last,) = connection.execute(f"SELECT max(rowid) FROM ({query})", limits).fetchone()
        return None if last is None else int(last)

    def _find_named(
        self, connection: sqlite3.Connection, where: str, last: int | None = None
    ) -> set[str]:
        texts = [f'CAST("{column}" AS BLOB)' for column in self.columns]
        columns = ", ".join(texts)
        conditions = " OR ".join(f"instr({text}, {_SHA256})" for text in texts)
        rows = connection.execute(
            f'SELECT {columns} FROM "{self.table}" WHERE {where} ({conditions})',
            () if last is None else (self.position, last),
        )
        return {name for row in rows for text in row if text for name in named_in(text)}


class Scan:
    """One pass over all stores. `wanted`: the files to look for, by hash. `named`: those that a
    text names."""

    def __init__(self, datadir: DataDir, wanted: Mapping[str, int]) -> None:
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
        """Read the texts that were written during the scan. Raises sqlite3.Error."""
        for table in self._tables:
            while self._read(table):
                pass

    def _read(self, table: TextTable) -> bool:
        part = table.read()
        self.named |= part.named & self.wanted.keys()
        if part.position is None:
            return False
        table.position = part.position
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
