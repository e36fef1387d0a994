"""Copies what can be read of a damaged database into a new file, table by table.

Rows are read page by page, without SQLite (`sqlite_pages.py`), so that a damaged page loses only
its own rows. Pages that a tree no longer reaches, because a page above them is damaged, are
assigned to the one table whose columns fit. Rows that an index refers to and that no page contains
are lost and reported.
"""

import mmap
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from appliance.kernel import schema
from appliance.kernel.clock import Clock
from appliance.kernel.datadir import BESIDE, DataDir, suspect_marker, sync_directory
from appliance.kernel.log import Log
from appliance.kernel.sqlite_pages import (
    INDEX_INTERIOR,
    INDEX_LEAF,
    TABLE_LEAF,
    Cell,
    PageFile,
)

SEQUENCE = "sqlite_sequence"
SCHEMA_KINDS = ("table", "index", "trigger", "view")
LOST_ROWS = "temp.lost_rows"
_MAKE_LOST_ROWS = (
    f"CREATE TABLE IF NOT EXISTS {LOST_ROWS} (name TEXT NOT NULL, number INTEGER NOT NULL,"
    " PRIMARY KEY (name, number)) STRICT, WITHOUT ROWID"
)
PROGRESS_ROWS = 10_000
OWN_OF_THE_FILE = ("x_migrations", "meta")  # the new file has its own rows; missing ones are added
_TYPES = {"TEXT": str, "INTEGER": int, "BLOB": bytes}


class RecoveryColumn(msgspec.Struct, frozen=True):
    name: str
    type: type
    required: bool


class RecoveryTable(msgspec.Struct, frozen=True):
    """A table of the new file. `stored`: its columns in the order of a record."""

    name: str
    stored: tuple[RecoveryColumn, ...]
    rowid_column: str | None  # a name of the rowid; None: the table has none

    def fits(self, cell: Cell) -> bool:
        """Whether a record can be a row of this table. Newer columns may be missing."""
        if not cell.complete or not 2 <= len(cell.values) <= len(self.stored):
            return False
        if len(cell.values) == 5 and cell.values[0] in SCHEMA_KINDS:
            return False  # a row of the schema itself
        for column, value in zip(self.stored, cell.values, strict=False):
            if value is None:
                if column.required and column.name != self.rowid_column:
                    return False
            elif type(value) is not column.type:
                return False
        return not any(column.required for column in self.stored[len(cell.values) :])


class TableRecovery(msgspec.Struct, frozen=True):
    """The result for one table.

    rows        rows that were copied
    rows_lost   rows that an index refers to, or that are cut off, and could not be read
    broken      rows that are cut off, by rowid: their columns up to the damage
    highest     the highest rowid of any row, copied or lost
    complete    no row is lost that is not counted; false if the damage may hide more rows
    """

    rows: int = 0
    rows_lost: int = 0
    broken: dict[int, tuple[Any, ...]] = {}
    highest: int = 0
    complete: bool = True


class DamagedFile:
    """The damaged file, read page by page."""

    def __init__(self, file: PageFile) -> None:
        self.file = file
        self._roots = self._read_roots()
        free = file.free_pages()
        self._owned = set(file.tree(1)[0])
        self._trees: dict[str, list[int]] = {}
        self._whole: set[str] = set()
        disputed: set[int] = set()
        for name, root in self._roots.items():
            pages, whole = file.tree(root)
            self._trees[name] = pages
            disputed.update(page for page in pages if page in self._owned)
            self._owned.update(pages)
            if whole:
                self._whole.add(name)
        self._release(disputed)
        self.complete = bool(self._roots) and len(self._whole) == len(self._roots)
        self._orphans = [] if self.complete else self._find_orphans(free)

    def _read_roots(self) -> dict[str, int]:
        """Roots of tables and indexes by name, from page 1."""
        roots = {}
        for cell in self._cells_of_tree(1):
            if len(cell.values) == 5 and isinstance(cell.values[3], int) and cell.values[3] > 1:
                roots[str(cell.values[1])] = cell.values[3]
        return roots

    def _release(self, disputed: set[int]) -> None:
        """Takes pages out of trees if several trees reach them, because a page above is damaged."""
        for name, pages in self._trees.items() if disputed else ():
            kept = [page for page in pages if page not in disputed]
            if len(kept) < len(pages):
                self._trees[name] = kept
                self._whole.discard(name)
        self._owned -= disputed

    def is_whole(self, name: str) -> bool:
        """Whether every page of a table or index, and every row on them, can be read."""
        return name in self._whole and all(
            self.file.is_whole(number) for number in self._trees[name]
        )

    def _cells_of_tree(self, root: int) -> Iterator[Cell]:
        for number in self.file.tree(root)[0]:
            yield from self.file.cells(number)

    def _find_orphans(self, free: set[int]) -> list[int]:
        """Leaves that no tree reaches and that are not listed as unused, in file order."""
        skipped = free | self._owned
        leaves = (TABLE_LEAF, INDEX_LEAF, INDEX_INTERIOR)
        numbers = range(1, self.file.count + 1)
        return [n for n in numbers if n not in skipped and self.file.kind(n) in leaves]

    def rows_of(self, table: RecoveryTable, others: Sequence[RecoveryTable]) -> Iterator[Cell]:
        """Cells of a table: those of its tree, then unreachable ones that fit only this table."""
        kinds = (INDEX_LEAF, INDEX_INTERIOR) if table.rowid_column is None else (TABLE_LEAF,)
        for number in self._trees.get(table.name, ()):
            if self.file.kind(number) in kinds:
                yield from self.file.cells(number)
        for number in self._orphans:
            if self.file.kind(number) not in kinds:
                continue
            for cell in self.file.cells(number):
                if not cell.complete:
                    if cell.rowid is not None and len(table.stored) > len(cell.values) > 1:
                        yield cell
                elif table.fits(cell) and not any(
                    other.fits(cell) for other in others if _alike(other, table)
                ):
                    yield cell

    def indexed_rowids(self, index: str) -> Iterator[int]:
        """The rowids in the readable pages of an index."""
        for number in self._trees.get(index, ()):
            for cell in self.file.cells(number):
                if cell.complete and type(cell.values[-1]) is int:
                    yield cell.values[-1]

    def texts_in_index(self, index: str) -> Iterator[tuple[str, int]]:
        """Entries of an index of one text column: the text and the rowid.

        Entries of unreachable index pages come last; they may belong to another such index.
        """
        for number in (*self._trees.get(index, ()), *self._orphans):
            if self.file.kind(number) in (INDEX_LEAF, INDEX_INTERIOR):
                for cell in self.file.cells(number):
                    if cell.complete and [type(value) for value in cell.values] == [str, int]:
                        yield cell.values[0], cell.values[1]

    def tables(self) -> list[str]:
        """The tables that the schema of the damaged file names, without those of SQLite and of its
        full-text indexes."""
        roots = {
            str(cell.values[1]): cell.values[3]
            for cell in self._cells_of_tree(1)
            if len(cell.values) == 5 and cell.values[0] == "table"
        }
        hidden = ("sqlite_", *(f"{name}_" for name, root in roots.items() if not root))
        return sorted(name for name, root in roots.items() if root and not name.startswith(hidden))

    def values_of(self, table: str) -> Iterator[list[Any]]:
        """The values of each complete row in the tree of a table, in the order of its columns."""
        for number in self._trees.get(table, ()):
            for cell in self.file.cells(number):
                if cell.complete:
                    yield cell.values

    def sequences(self) -> dict[str, int]:
        """The highest number that AUTOINCREMENT gave, by table."""
        highest = {}
        for number in self._trees.get(SEQUENCE, ()):
            for cell in self.file.cells(number):
                if len(cell.values) == 2 and isinstance(cell.values[1], int):
                    highest[str(cell.values[0])] = cell.values[1]
        return highest


def _alike(table: RecoveryTable, other: RecoveryTable) -> bool:
    return table.name != other.name and (table.rowid_column is None) == (other.rowid_column is None)


@contextmanager
def _wal_of(database: Path) -> Iterator[bytes | mmap.mmap]:
    """The write-ahead log of a database, which is not read into memory as a whole."""
    log = database.with_name(database.name + "-wal")
    if not log.exists() or log.stat().st_size == 0:
        yield b""
        return
    with log.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield content


@contextmanager
def opened(damaged: Path, made: Path) -> Iterator[tuple[DamagedFile, sqlite3.Connection]]:
    """Opens both files. At the end the changes to `made` are on the disk, without a log."""
    with ExitStack() as stack:
        target = stack.enter_context(closing(sqlite3.connect(made, isolation_level=None)))
        source = stack.enter_context(damaged.open("rb"))

        def read(offset: int, length: int) -> bytes:
            source.seek(offset)
            return source.read(length)

        wal = stack.enter_context(_wal_of(damaged))
        target.execute("PRAGMA synchronous = FULL")
        target.execute("PRAGMA foreign_keys = OFF")
        target.execute("BEGIN IMMEDIATE")
        yield DamagedFile(PageFile(read, damaged.stat().st_size, wal)), target
        target.execute("COMMIT")
        target.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    descriptor = os.open(made, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def tables_of(connection: sqlite3.Connection) -> list[RecoveryTable]:
    """The tables of a file, without SQLite's internal ones."""
    names = connection.execute(
        "SELECT name, wr FROM pragma_table_list WHERE type = 'table' AND schema = 'main'"
        " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
    ).fetchall()
    return [_table(connection, name, bool(without_rowid)) for name, without_rowid in names]


def _table(connection: sqlite3.Connection, name: str, without_rowid: bool) -> RecoveryTable:
    rows = connection.execute("SELECT name, type, \"notnull\", dflt_value, pk FROM"
                              " pragma_table_info(?)", (name,)).fetchall()  # fmt: skip
    keys = sorted((row for row in rows if row[4]), key=lambda row: row[4])
    if without_rowid:
        rows = [*keys, *(row for row in rows if not row[4])]
    alias = len(keys) == 1 and keys[0][1].upper() == "INTEGER" and not without_rowid
    columns = tuple(
        RecoveryColumn(row[0], _TYPES.get(row[1].upper(), str), bool(row[2]) and row[3] is None)
        for row in rows
    )
    return RecoveryTable(name, columns, None if without_rowid else keys[0][0] if alias else "rowid")


def copy_table(
    damaged: DamagedFile,
    target: sqlite3.Connection,
    table: RecoveryTable,
    others: Sequence[RecoveryTable],
    progress: Callable[[str, int], None] = lambda *_: None,
) -> TableRecovery:
    """Copies every row of a table that can be read. A row that the schema refuses is damaged.

    `progress` is called with the table and the number of its rows every PROGRESS_ROWS rows. Rowids
    of lost rows are in the temporary table LOST_ROWS of `target`.
    """
    broken: dict[int, tuple[Any, ...]] = {}
    rows = refused = 0
    for cell in damaged.rows_of(table, others):
        if not cell.complete:
            broken.setdefault(cell.rowid or 0, tuple(cell.values))
        elif _insert(target, table, cell):
            rows += 1
            if rows % PROGRESS_ROWS == 0:
                progress(table.name, rows)
        else:
            refused += 1
    target.execute(_MAKE_LOST_ROWS)
    complete = damaged.is_whole(table.name) and not refused
    if table.rowid_column is None:
        return TableRecovery(rows, complete=complete)
    _note_lost(target, table, broken)
    for index, partial in _all_indexes_of(target, table.name):
        _note_lost(target, table, damaged.indexed_rowids(index))
        complete = complete or (not partial and damaged.is_whole(index))
    lost = f"FROM {LOST_ROWS} WHERE name = ?"
    count, highest = target.execute(
        f"SELECT count(*), coalesce(max(number), 0) {lost}", (table.name,)
    ).fetchone()
    (copied,) = target.execute(f'SELECT coalesce(max(rowid), 0) FROM "{table.name}"').fetchone()
    beginnings = {
        number: broken[number]
        for number in sorted(broken)
        if target.execute(f"SELECT 1 {lost} AND number = ?", (table.name, number)).fetchone()
    }
    return TableRecovery(rows, count, beginnings, max(highest, copied), complete)


def _note_lost(target: sqlite3.Connection, table: RecoveryTable, numbers: Iterable[int]) -> None:
    """Adds the rowids without a row to LOST_ROWS."""
    target.executemany(
        f"INSERT OR IGNORE INTO {LOST_ROWS} SELECT ?1, ?2"
        f' WHERE NOT EXISTS (SELECT 1 FROM "{table.name}" WHERE rowid = ?2)',
        ((table.name, number) for number in numbers),
    )


def lost_ranges(
    target: sqlite3.Connection, table: str, limit: int
) -> tuple[int, list[tuple[int, int]]]:
    """How many rows of a table are lost now, and the first and last rowid of at most `limit` ranges
    of them. Rows that were added after `copy_table` are no longer lost."""
    query = (
        f"SELECT number FROM {LOST_ROWS} WHERE name = ?1"
        f' AND NOT EXISTS (SELECT 1 FROM "{table}" WHERE rowid = number)'
    )
    (count,) = target.execute(f"SELECT count(*) FROM ({query})", (table,)).fetchone()
    ranges = target.execute(
        "SELECT min(number), max(number) FROM"
        f" (SELECT number, number - row_number() OVER (ORDER BY number) AS start FROM ({query}))"
        " GROUP BY start ORDER BY start LIMIT ?2",
        (table, limit),
    )
    return count, ranges.fetchall()


def _insert(target: sqlite3.Connection, table: RecoveryTable, cell: Cell) -> bool:
    names = [column.name for column in table.stored[: len(cell.values)]]
    values = list(cell.values)
    if len(values) > len(names):
        return False
    if table.rowid_column in names:
        values[names.index(table.rowid_column)] = cell.rowid
    elif table.rowid_column is not None:
        names, values = ["rowid", *names], [cell.rowid, *values]
    marks = ", ".join("?" * len(names))
    listed = ", ".join(f'"{name}"' for name in names)
    try:
        done = target.execute(
            f'INSERT OR IGNORE INTO "{table.name}" ({listed}) VALUES ({marks})', values
        )
    except (sqlite3.Error, OverflowError):
        return False
    return done.rowcount > 0


def _all_indexes_of(connection: sqlite3.Connection, table: str) -> list[tuple[str, bool]]:
    """The indexes of a table, and whether each is partial: then not every row is in it."""
    rows = connection.execute("SELECT name, partial FROM pragma_index_list(?)", (table,))
    return [(name, bool(partial)) for name, partial in rows.fetchall()]


def keep_sequences(damaged: DamagedFile, target: sqlite3.Connection) -> None:
    """Makes sure that numbers of lost rows are not used again."""
    for name, number in damaged.sequences().items():
        keep_sequence(target, name, number)


def keep_sequence(target: sqlite3.Connection, table: str, number: int) -> None:
    """The next row of a table with AUTOINCREMENT gets a higher number than `number`."""
    target.execute("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", (number, table))
    target.execute(
        "INSERT INTO sqlite_sequence (name, seq) SELECT ?1, ?2 WHERE NOT EXISTS"
        " (SELECT 1 FROM sqlite_sequence WHERE name = ?1)",
        (table, number),
    )


Connection = sqlite3.Connection
Report = dict[str, TableRecovery]
"""The result for each table, by name."""


def recover_file(
    datadir: DataDir,
    store: str,
    clock: Clock,
    log: Log,
    complete: Callable[[DamagedFile, sqlite3.Connection, Report], None] = lambda *_: None,
) -> tuple[str, Report]:
    """Copies a store's damaged file and replaces it by a new one. Call with the lock held.

    Returns the copy's name and the result for each table. `complete` may add to the new file before
    it replaces the old one.
    """
    database = datadir.database(store)
    kept = database.with_name(f"{database.name}.corrupt-{clock.now_ms()}")
    for suffix in ("", *BESIDE):
        part = database.with_name(database.name + suffix)
        if part.exists():
            shutil.copy2(part, kept.with_name(kept.name + suffix))
    made = database.with_name(f".{database.name}.recovered")
    for suffix in ("", *BESIDE):
        made.with_name(made.name + suffix).unlink(missing_ok=True)
    schema.migrate(made, store, clock=clock, backups=datadir.backups, log=log)
    with opened(database, made) as (damaged, target):
        report = copy_tables(damaged, target)
        complete(damaged, target, report)
    for suffix in BESIDE:  # a log of the old file must not be applied to the new one
        database.with_name(database.name + suffix).unlink(missing_ok=True)
    made.rename(database)
    sync_directory(database.parent)
    suspect_marker(database).unlink(missing_ok=True)
    return kept.name, report


def copy_tables(damaged: DamagedFile, target: sqlite3.Connection) -> Report:
    """Fills all tables of the new file from the damaged one."""
    tables = tables_of(target)
    report = {}
    for table in tables:
        done = copy_table(damaged, target, table, tables)
        if table.name not in OWN_OF_THE_FILE:
            report[table.name] = done
    keep_sequences(damaged, target)
    return report
