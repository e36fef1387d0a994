"""Copies what can be read of a damaged file into a new one, table by table, and counts the rest.

Rows on pages that no tree reaches are assigned to a table only if they fit no other table or index,
or if the rows that they refer to are there. Others are counted as ambiguous.
"""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.event_ids import keep_sequence
from appliance.kernel.store_declaration import RecoveryReference
from appliance.recovery.damaged import DamagedFile
from appliance.recovery.pages import Cell
from appliance.recovery.shapes import Shape

LOST = "temp.lost_rows"
RANGES_MAX = 20
PROGRESS_ROWS = 10_000
GAP_MAX = 1_000_000  # more missing numbers in a row were never given: a restore leaves them out
_MAKE_LOST = (
    f"CREATE TABLE {LOST} (name TEXT NOT NULL, number INTEGER NOT NULL,"
    " PRIMARY KEY (name, number)) STRICT, WITHOUT ROWID"
)
FOUND, UNKNOWN, CONTRADICTED = 2, 1, 0
Progress = Callable[[str, int], None]


class TableRecovery(msgspec.Struct):
    """The result for one table.

    read         rows that were copied
    rebuilt      rows that were made from other tables
    lost         rows that are known to be lost
    lost_ranges  first and last number of lost rows, at most RANGES_MAX ranges
    complete     every row was read or rebuilt
    counted      `lost` is exact; if false, it may be more
    highest      the highest number of a row that is known; numbers up to it may be lost too
    ambiguous    rows on pages that may be of this table, but also of another one; not copied
    """

    read: int = 0
    rebuilt: int = 0
    lost: int = 0
    lost_ranges: list[tuple[int, int]] = []
    complete: bool = False
    counted: bool = False
    highest: int = 0
    ambiguous: int = 0


class Copying:
    """Fills `target`, a new file with the schema of this program. `broken`: rows that are cut off,
    by table and number: their columns up to the damage."""

    def __init__(
        self,
        damaged: DamagedFile,
        target: sqlite3.Connection,
        shapes: Sequence[Shape],
        references: Iterable[RecoveryReference],
        skipped: Iterable[str],
        clock: Clock,
        progress: Progress = lambda *_: None,
    ) -> None:
        self.damaged = damaged
        self.target = target
        self.clock = clock
        self.progress = progress
        self.notes: list[str] = []
        self.suspicious = 0  # rows that are in the new file but not as they were
        hidden = {*skipped, "sqlite_sequence"}
        self._shapes = [shape for shape in shapes if shape.table not in hidden]
        self._tables = {s.name: s for s in self._shapes if not s.is_index}
        self._indexes = [s for s in self._shapes if s.is_index]
        self._references = list(references)
        self.result = {name: TableRecovery() for name in self._tables}
        self.broken: dict[str, dict[int, list[Any]]] = {name: {} for name in self._tables}
        self._refused: set[str] = set()

    def run(self) -> None:
        for table in self._tables.values():
            for cell in self.damaged.records(table.name):
                self._copy(table, cell, refusable=True)
        self._assign_orphans()
        self.target.execute(_MAKE_LOST)
        for name, number in self.damaged.sequences().items():
            keep_sequence(self.target, name, number)
        for table in self._tables.values():
            self._count(table)

    def lacks(self, name: str) -> bool:
        """Whether rows of a table may be missing."""
        return not self.result[name].counted or bool(self.result[name].lost)

    def add_rebuilt(self, name: str, rows: int) -> None:
        """Rows that were made from other tables are no longer lost."""
        done = self.result[name]
        done.rebuilt += rows
        if self._tables[name].rowid_column is not None:
            self._recount(name)
        else:
            done.lost = max(0, done.lost - rows)
            done.complete = done.counted and not done.lost

    def report_changed(self, noun: str, ids: Sequence[str]) -> None:
        """Rows that were read, but whose content is not what it was."""
        self.suspicious += len(ids)
        if ids:
            more = ", …" if len(ids) > RANGES_MAX else ""
            self.notes.append(
                f"{len(ids)} {noun} do not match their fingerprint:"
                f" {', '.join(ids[:RANGES_MAX])}{more}"
            )

    def _copy(self, table: Shape, cell: Cell, refusable: bool) -> None:
        done = self.result[table.name]
        if not cell.complete:
            self.broken[table.name].setdefault(cell.rowid or 0, cell.values)
            self._refused.add(table.name)
        elif _insert(self.target, table, cell):
            done.read += 1
            if done.read % PROGRESS_ROWS == 0:
                self.progress(table.name, done.read)
        elif refusable:
            self._refused.add(table.name)

    # -- pages that no tree reaches ------------------------------------------------------------

    def _assign_orphans(self) -> None:
        """Assigned rows may be what others refer to, so it is repeated until nothing changes."""
        candidates = [shape for shape in self._shapes if not self.damaged.is_whole(shape.name)]
        waiting, before = list(self.damaged.orphans), -1
        while waiting and len(waiting) != before:
            before = len(waiting)
            waiting = [page for page in waiting if not self._assign(page, candidates)]
        for page in waiting:
            cells = list(self.damaged.file.cells(page))
            for shape in self._fitting(page, cells, candidates):
                if not shape.is_index:
                    self.result[shape.name].ambiguous += len(cells)

    def _fitting(self, page: int, cells: list[Cell], candidates: list[Shape]) -> list[Shape]:
        kind, whole = self.damaged.file.kind(page), [cell for cell in cells if cell.complete]
        return [
            shape
            for shape in candidates
            if kind in shape.leaf_kinds and whole and all(map(shape.fits, whole))
        ]

    def _assign(self, page: int, candidates: list[Shape]) -> bool:
        """Whether it is clear of what this page is."""
        cells = list(self.damaged.file.cells(page))
        fitting = self._fitting(page, cells, candidates)
        evidence = [self._evidence(shape, cells) for shape in fitting]
        best = max(evidence, default=CONTRADICTED)
        likely = [s for s, each in zip(fitting, evidence, strict=True) if each == best]
        if best == CONTRADICTED or (len(likely) > 1 and not all(s.is_index for s in likely)):
            return not fitting
        for cell in cells if not likely[0].is_index else ():
            self._copy(likely[0], cell, refusable=False)
        return True

    def _evidence(self, shape: Shape, cells: list[Cell]) -> int:
        """Whether most of these records refer to rows that are there."""
        if shape.is_index:
            names = tuple(column.name for column in shape.stored)
            references = [RecoveryReference(shape.name, names, shape.table, names)]
        else:
            references = [r for r in self._references if r.table == shape.name]
        return min(
            (self._refers(shape, reference, cells) for reference in references), default=UNKNOWN
        )

    def _refers(self, shape: Shape, reference: RecoveryReference, cells: list[Cell]) -> int:
        names = [column.name for column in shape.stored]
        pairs = [
            (names.index(own), theirs)
            for own, theirs in zip(reference.columns, reference.named_columns, strict=True)
            if own
        ]
        where = " AND ".join(f'"{theirs}" IS ?' for _, theirs in pairs)
        table = reference.named
        query = f'SELECT 1 FROM "{table}" WHERE {where}'
        there = [
            self.target.execute(query, [cell.values[at] for at, _ in pairs]).fetchone() is not None
            for cell in cells
            if cell.complete and all(at < len(cell.values) for at, _ in pairs)
        ]
        if sum(there) * 2 > len(there):
            return FOUND
        return CONTRADICTED if self.damaged.is_whole(reference.named) else UNKNOWN

    # -- what is lost ---------------------------------------------------------------------------

    def _count(self, table: Shape) -> None:
        """Counts lost rows by the indexes, or by the numbers that were given."""
        done = self.result[table.name]
        counted = self.damaged.is_whole(table.name) and table.name not in self._refused
        indexes = [index for index in self._indexes if index.table == table.name]
        if table.rowid_column is None:
            if not counted:
                full = [i for i in indexes if i.whole_table]
                entries = [sum(1 for _ in self.damaged.records(i.name)) for i in full]
                done.lost = max(0, max(entries, default=0) - done.read)
                counted = any(self.damaged.is_whole(index.name) for index in full)
            done.counted, done.complete = counted, counted and not done.lost
            return
        self._note_lost(table, self.broken[table.name])
        for index in indexes:
            entries_of = (c.values[-1] for c in self.damaged.records(index.name) if c.complete)
            self._note_lost(table, (n for n in entries_of if type(n) is int))
            counted = counted or (index.whole_table and self.damaged.is_whole(index.name))
        if table.numbered and not counted:
            self._note_gaps(table)
        (highest,) = self.target.execute(
            f'SELECT max(coalesce((SELECT max(rowid) FROM "{table.name}"), 0),'
            f" coalesce((SELECT max(number) FROM {LOST} WHERE name = ?), 0))", (table.name,)
        ).fetchone()  # fmt: skip
        if table.numbered:
            keep_sequence(self.target, table.name, highest)
        done.highest, done.counted = highest, counted
        self._recount(table.name)

    def _note_lost(self, table: Shape, numbers: Iterable[int]) -> None:
        self.target.executemany(
            f"INSERT OR IGNORE INTO {LOST} SELECT ?1, ?2"
            f' WHERE NOT EXISTS (SELECT 1 FROM "{table.name}" WHERE rowid = ?2)',
            ((table.name, number) for number in numbers),
        )

    def _note_gaps(self, table: Shape) -> None:
        """Numbers without a row are lost, unless an index counts them. Rows of such a
        table are deleted only from its beginning."""
        self.target.execute(
            f"INSERT OR IGNORE INTO {LOST} WITH RECURSIVE given (number) AS"
            f' (SELECT rowid FROM "{table.name}" UNION'
            "  SELECT seq + 1 FROM sqlite_sequence WHERE name = :name),"
            " step (first, until) AS (SELECT lag(number) OVER (ORDER BY number) + 1, number"
            "  FROM given),"
            " gap (number, until) AS (SELECT first, until FROM step"
            "  WHERE first < until AND until - first <= :longest"
            "  UNION ALL SELECT number + 1, until FROM gap WHERE number + 1 < until)"
            " SELECT :name, number FROM gap",
            {"name": table.name, "longest": GAP_MAX},
        )

    def _recount(self, table: str) -> None:
        """What is lost now."""
        done = self.result[table]
        query = (
            f"SELECT l.number FROM {LOST} AS l WHERE l.name = ?1"
            f' AND NOT EXISTS (SELECT 1 FROM "{table}" AS t WHERE t.rowid = l.number)'
        )
        (done.lost,) = self.target.execute(f"SELECT count(*) FROM ({query})", (table,)).fetchone()
        done.lost_ranges = self.target.execute(
            "SELECT min(number), max(number) FROM (SELECT number,"
            f" number - row_number() OVER (ORDER BY number) AS start FROM ({query}))"
            " GROUP BY start ORDER BY start LIMIT ?2",
            (table, RANGES_MAX),
        ).fetchall()
        done.complete = done.counted and not done.lost


def _insert(target: sqlite3.Connection, table: Shape, cell: Cell) -> bool:
    """Whether the row was added. A row that the schema refuses is damaged."""
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
