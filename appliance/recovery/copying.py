"""Copies the readable rows from a damaged file into a new one, table by table, and counts the rest.

Rows on pages that no tree reaches are assigned to a table only if no other table or index fits. The
rest is counted as ambiguous.
"""

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.event_ids import keep_sequence
from appliance.recovery.damaged import DamagedFile
from appliance.recovery.pages import Cell
from appliance.recovery.shapes import SEQUENCE, Shape

NAMED_MAX = 20
GAP_MAX = 1_000_000  # a longer gap in the numbers is a restore's, so nothing was lost there
# Numbers without a row. Tables with AUTOINCREMENT lose rows only at the beginning.
_GAPS = (
    'WITH given (number) AS (SELECT rowid FROM "{table}" UNION'
    " SELECT seq + 1 FROM sqlite_sequence WHERE name = '{table}'),"
    " gaps (length) AS (SELECT number - 1 - lag(number) OVER (ORDER BY number) FROM given)"
    f" SELECT coalesce(sum(length), 0) FROM gaps WHERE length <= {GAP_MAX}"
)


class TableRecovery(msgspec.Struct):
    """The result for one table.

    read       rows that were copied
    rebuilt    rows that were made from other tables
    lost       rows that are known to be lost
    counted    whether `lost` is exact; otherwise the number is a minimum
    ambiguous  rows on pages that may belong to two tables; not copied
    """

    read: int = 0
    rebuilt: int = 0
    lost: int = 0
    counted: bool = False
    ambiguous: int = 0

    @property
    def complete(self) -> bool:
        """Return whether every row was read or rebuilt."""
        return self.counted and not self.lost and not self.ambiguous


class Copying:
    """Fills `target`, a new file with this program's schema."""

    def __init__(
        self,
        damaged: DamagedFile,
        target: sqlite3.Connection,
        shapes: Sequence[Shape],
        skipped: Iterable[str],
        clock: Clock,
    ) -> None:
        self.damaged = damaged
        self.target = target
        self.clock = clock
        self.notes: list[str] = []
        self.is_certain = True  # no note says that the new file may lack something
        self._shapes = shapes
        hidden = {*skipped, SEQUENCE}
        self._tables = {s.name: s for s in shapes if not s.is_index and s.name not in hidden}
        self.result = {name: TableRecovery() for name in self._tables}

    def run(self) -> None:
        for name, table in self._tables.items():
            refused = sum(not self._copy(table, cell) for cell in self.damaged.records(name))
            self.result[name].counted = self.damaged.is_whole(name) and not refused
        self._assign_orphans()
        for name, number in self.damaged.sequences().items():
            keep_sequence(self.target, name, number)
        for table in self._tables.values():
            self._count(table)

    def lacks(self, name: str) -> bool:
        """Return whether rows may be missing from a table."""
        return not self.result[name].counted or bool(self.result[name].lost)

    def add_rebuilt(self, name: str, rows: int) -> None:
        """Count rows that were made from other tables, which are no longer lost."""
        self.result[name].rebuilt += rows
        self._count(self._tables[name])

    def doubt(self, note: str) -> None:
        """Note data that is missing or may have changed."""
        self.notes.append(note)
        self.is_certain = False

    def report_changed(self, noun: str, ids: Sequence[str]) -> None:
        """Report rows that were read with changed content."""
        if ids:
            first = ", ".join(ids[:NAMED_MAX])
            self.doubt(f"{len(ids)} {noun} do not match their fingerprint: {first}")

    def _copy(self, table: Shape, cell: Cell) -> bool:
        """Add the row and return whether that worked. A row that the schema refuses is damaged."""
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
        insert = f'INSERT OR IGNORE INTO "{table.name}" ({listed}) VALUES ({marks})'
        try:
            added = self.target.execute(insert, values).rowcount > 0
        except (sqlite3.Error, OverflowError):
            return False
        self.result[table.name].read += added
        return added

    def _assign_orphans(self) -> None:
        """Copy rows from pages that no tree reaches, if the rows fit exactly one table."""
        candidates = [shape for shape in self._shapes if not self.damaged.is_whole(shape.name)]
        for page in self.damaged.orphans:
            kind, cells = self.damaged.file.kind(page), list(self.damaged.file.cells(page))
            fitting = [
                shape
                for shape in candidates
                if kind in shape.leaf_kinds and cells and all(map(shape.fits, cells))
            ]
            for name in {shape.name for shape in fitting} & self.result.keys():
                if len(fitting) > 1:
                    self.result[name].ambiguous += len(cells)
                else:
                    for cell in cells:
                        self._copy(self._tables[name], cell)

    def _count(self, table: Shape) -> None:
        """Count lost rows by the index entries, or by the numbers that were given."""
        done = self.result[table.name]
        done.lost = 0
        for index in self._shapes:
            if index.is_index and index.table == table.name:
                done.lost = max(done.lost, self._count_missing(index, table.numbered))
                if index.whole_table and self.damaged.is_whole(index.name):
                    done.counted = True
        if table.numbered:
            query = f'SELECT coalesce(max(rowid), 0) FROM "{table.name}"'
            keep_sequence(self.target, table.name, *self.target.execute(query).fetchone())
            if not done.counted:
                (gaps,) = self.target.execute(_GAPS.format(table=table.name)).fetchone()
                done.lost = max(done.lost, gaps)

    def _count_missing(self, index: Shape, numbered: bool) -> int:
        """Return how many index entries have no row. Their numbers are not given out again."""
        named = [number for number, column in enumerate(index.stored) if column.name]
        where = " AND ".join(f'"{index.stored[number].name}" IS ?' for number in named)
        query = f'SELECT 1 FROM "{index.table}" WHERE {where}'
        missing = highest = 0
        for cell in filter(index.fits, self.damaged.records(index.name)):
            row = self.target.execute(query, [cell.values[number] for number in named])
            if row.fetchone() is None:
                missing += 1
                highest = max(highest, cell.values[-1]) if numbered else 0
        if highest:
            keep_sequence(self.target, index.table, highest)
        return missing
