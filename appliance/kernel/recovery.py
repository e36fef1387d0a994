"""Copies what can be read of a damaged database into a new file, table by table.

Rows are read page by page, without SQLite (`sqlite_pages.py`), so that a damaged page loses the
rows on it and no others. Pages that a tree no longer reaches, because a page above them is damaged,
are given to the one table whose columns fit. Every index names the rows that it knows: what an
index knows and no page holds was lost, and is reported. A scan that ends proves nothing.
"""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from appliance.kernel import schema
from appliance.kernel.clock import Clock
from appliance.kernel.datadir import DataDir, suspect_mark, sync_directory
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
OWN_OF_THE_FILE = ("x_migrations", "meta")  # the new file has its own; only what it lacks is added
_BESIDE = ("-wal", "-shm", "-journal")
_TYPES = {"TEXT": str, "INTEGER": int, "BLOB": bytes}


class Column(msgspec.Struct, frozen=True):
    name: str
    type: type
    required: bool


class Table(msgspec.Struct, frozen=True):
    """A table as the new file has it. `stored` are its columns in the order of a record."""

    name: str
    stored: tuple[Column, ...]
    rowid_column: str | None  # a name for the row's number; None: the table has no such number

    def fits(self, cell: Cell) -> bool:
        """Whether a record could be a row of this table; columns added later may be missing."""
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


class Recovered(msgspec.Struct, frozen=True):
    """What became of one table.

    rows        rows that were copied
    rows_lost   rows that an index names, or whose beginning is there, and that could not be read
    broken      beginnings of such rows by number: their columns up to where the damage begins
    highest     the highest number of any row, copied or lost
    """

    rows: int = 0
    rows_lost: int = 0
    broken: dict[int, tuple[Any, ...]] = {}
    highest: int = 0


class Damaged:
    """The damaged file, read page by page."""

    def __init__(self, file: PageFile) -> None:
        self.file = file
        self._roots = self._read_roots()
        free = file.free_pages()
        self._owned = set(file.tree(1)[0])
        self._trees: dict[str, list[int]] = {}
        self.whole = bool(self._roots)
        for name, root in self._roots.items():
            pages, whole = file.tree(root)
            self._trees[name] = pages
            self._owned.update(pages)
            self.whole = self.whole and whole
        self._orphans = [] if self.whole else self._find_orphans(free)

    def _read_roots(self) -> dict[str, int]:
        """Roots of tables and indexes by name, from page 1."""
        roots = {}
        for cell in self._cells_of_tree(1):
            if len(cell.values) == 5 and isinstance(cell.values[3], int) and cell.values[3] > 1:
                roots[str(cell.values[1])] = cell.values[3]
        return roots

    def _cells_of_tree(self, root: int) -> Iterator[Cell]:
        for number in self.file.tree(root)[0]:
            yield from self.file.cells(number)

    def _find_orphans(self, free: set[int]) -> list[int]:
        """Leaves that no tree reaches and that are not listed as unused, in order of the file."""
        skipped = free | self._owned
        leaves = (TABLE_LEAF, INDEX_LEAF, INDEX_INTERIOR)
        numbers = range(1, self.file.count + 1)
        return [n for n in numbers if n not in skipped and self.file.kind(n) in leaves]

    def rows_of(self, table: Table, others: Sequence[Table]) -> Iterator[Cell]:
        """Cells of a table: those of its tree first, then those of lost pages that fit it alone."""
        for number in self._trees.get(table.name, ()):
            yield from self.file.cells(number)
        for number in self._orphans:
            if (self.file.kind(number) == TABLE_LEAF) != (table.rowid_column is not None):
                continue
            for cell in self.file.cells(number):
                if not cell.complete:
                    if cell.rowid is not None and len(table.stored) > len(cell.values) > 1:
                        yield cell
                elif table.fits(cell) and not any(
                    other.fits(cell) for other in others if _alike(other, table)
                ):
                    yield cell

    def indexed_rowids(self, index: str) -> set[int]:
        """Numbers of rows that an index names, where its pages can be read."""
        found = set()
        for number in self._trees.get(index, ()):
            for cell in self.file.cells(number):
                if cell.complete and type(cell.values[-1]) is int:
                    found.add(cell.values[-1])
        return found

    def texts_in_index(self, index: str) -> Iterator[tuple[str, int]]:
        """Entries of an index of one text: the text and its row's number.

        Those of index pages that no tree reaches follow; they may be of another such index.
        """
        for number in (*self._trees.get(index, ()), *self._orphans):
            if self.file.kind(number) in (INDEX_LEAF, INDEX_INTERIOR):
                for cell in self.file.cells(number):
                    if cell.complete and [type(value) for value in cell.values] == [str, int]:
                        yield cell.values[0], cell.values[1]

    def sequences(self) -> dict[str, int]:
        """The highest number that AUTOINCREMENT gave, by table."""
        found = {}
        for number in self._trees.get(SEQUENCE, ()):
            for cell in self.file.cells(number):
                if len(cell.values) == 2 and isinstance(cell.values[1], int):
                    found[str(cell.values[0])] = cell.values[1]
        return found


def _alike(one: Table, other: Table) -> bool:
    return one.name != other.name and (one.rowid_column is None) == (other.rowid_column is None)


@contextmanager
def opened(damaged: Path, made: Path) -> Iterator[tuple[Damaged, sqlite3.Connection]]:
    """Both files; at the end what was added to `made` is on the disk, without a log beside it."""
    with ExitStack() as stack:
        target = stack.enter_context(closing(sqlite3.connect(made, isolation_level=None)))
        source = stack.enter_context(damaged.open("rb"))

        def read(offset: int, length: int) -> bytes:
            source.seek(offset)
            return source.read(length)

        beside = damaged.with_name(damaged.name + "-wal")
        wal = beside.read_bytes() if beside.exists() else b""
        target.execute("PRAGMA synchronous = FULL")
        target.execute("PRAGMA foreign_keys = OFF")
        target.execute("BEGIN IMMEDIATE")
        yield Damaged(PageFile(read, damaged.stat().st_size, wal)), target
        target.execute("COMMIT")
        target.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    descriptor = os.open(made, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def tables_of(connection: sqlite3.Connection) -> list[Table]:
    """The tables of a file, without SQLite's own."""
    names = connection.execute(
        "SELECT name, wr FROM pragma_table_list WHERE type = 'table' AND schema = 'main'"
        " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
    ).fetchall()
    return [_table(connection, name, bool(without_rowid)) for name, without_rowid in names]


def _table(connection: sqlite3.Connection, name: str, without_rowid: bool) -> Table:
    rows = connection.execute("SELECT name, type, \"notnull\", dflt_value, pk FROM"
                              " pragma_table_info(?)", (name,)).fetchall()  # fmt: skip
    keys = sorted((row for row in rows if row[4]), key=lambda row: row[4])
    if without_rowid:
        rows = [*keys, *(row for row in rows if not row[4])]
    alias = len(keys) == 1 and keys[0][1].upper() == "INTEGER" and not without_rowid
    columns = tuple(
        Column(row[0], _TYPES.get(row[1].upper(), str), bool(row[2]) and row[3] is None)
        for row in rows
    )
    return Table(name, columns, None if without_rowid else keys[0][0] if alias else "rowid")


def copy_table(
    damaged: Damaged, target: sqlite3.Connection, table: Table, others: Sequence[Table]
) -> Recovered:
    """Every row of a table that can be read. What the schema refuses is damaged too."""
    known: set[int] = set()
    broken: dict[int, tuple[Any, ...]] = {}
    rows = 0
    for cell in damaged.rows_of(table, others):
        if not cell.complete:
            broken.setdefault(cell.rowid or 0, tuple(cell.values))
        elif _insert(target, table, cell):
            rows += 1
            known.add(cell.rowid or 0)
    named = set(broken)
    if table.rowid_column is not None:
        for index in indexes_of(target, table.name):
            named |= damaged.indexed_rowids(index)
    lost = named - known
    beginnings = {number: broken[number] for number in sorted(lost & broken.keys())}
    return Recovered(rows, len(lost), beginnings, max(named | known, default=0))


def _insert(target: sqlite3.Connection, table: Table, cell: Cell) -> bool:
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


def indexes_of(connection: sqlite3.Connection, table: str) -> list[str]:
    rows = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = ?", (table,)
    )
    return [name for (name,) in rows.fetchall()]


def keep_sequences(damaged: Damaged, target: sqlite3.Connection) -> None:
    """Numbers that were given are not given again, also where their rows are lost."""
    for name, number in damaged.sequences().items():
        target.execute(
            "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", (number, name)
        )
        target.execute(
            "INSERT INTO sqlite_sequence (name, seq) SELECT ?, ? WHERE NOT EXISTS"
            " (SELECT 1 FROM sqlite_sequence WHERE name = ?)",
            (name, number, name),
        )  # fmt: skip


Connection = sqlite3.Connection
Report = dict[str, Recovered]
"""What became of each table, by name."""


def recover_file(
    datadir: DataDir,
    store: str,
    clock: Clock,
    log: Log,
    complete: Callable[[Damaged, sqlite3.Connection, Report], None] = lambda *_: None,
) -> tuple[str, Report]:
    """Keeps a copy of a store's damaged file and puts a new one in its place. Under the lock.

    Returns the copy's name and what became of each table. `complete` may add to the new file
    before it takes the place of the old one; until then the old one is what a start finds.
    """
    database = datadir.database(store)
    kept = database.with_name(f"{database.name}.corrupt-{clock.now_ms()}")
    for suffix in ("", *_BESIDE):
        part = database.with_name(database.name + suffix)
        if part.exists():
            shutil.copy2(part, kept.with_name(kept.name + suffix))
    made = database.with_name(f".{database.name}.recovered")
    for suffix in ("", *_BESIDE):
        made.with_name(made.name + suffix).unlink(missing_ok=True)
    schema.migrate(made, store, clock=clock, backups=datadir.backups, log=log)
    with opened(database, made) as (damaged, target):
        report = copy_tables(damaged, target)
        complete(damaged, target, report)
    for suffix in _BESIDE:  # a log of the old file must not meet the new one
        database.with_name(database.name + suffix).unlink(missing_ok=True)
    made.rename(database)
    sync_directory(database.parent)
    suspect_mark(database).unlink(missing_ok=True)
    return kept.name, report


def copy_tables(damaged: Damaged, target: sqlite3.Connection) -> Report:
    """All tables of the new file, filled from the damaged one."""
    tables = tables_of(target)
    report = {}
    for table in tables:
        done = copy_table(damaged, target, table, tables)
        if table.name not in OWN_OF_THE_FILE:
            report[table.name] = done
    keep_sequences(damaged, target)
    return report
