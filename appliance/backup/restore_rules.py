"""Lets the subsystem of a store change its new file, and raises numbers.

The store before the restore is attached as `present`, if it can be read.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Literal

import appliance
from appliance.backup.errors import RestoreRefused
from appliance.backup.restore_job import RestoreJob
from appliance.kernel import meta
from appliance.kernel.event_ids import keep_sequence
from appliance.kernel.store_declaration import declaration_of
from appliance.kernel.store_files import open_database, suspect_marker
from appliance.shared.segment_chain import JUMP
from appliance.workspace import row_digest
from appliance.workspace.restoring import RestoreContext

Mode = Literal["ro", "rw"]
_SEQUENCES = {
    "main": "SELECT seq FROM main.sqlite_sequence WHERE name = ?",
    "present": "SELECT seq FROM present.sqlite_sequence WHERE name = ?",
}


class RestoredStore:
    """The new file of a store beside the one before it."""

    def __init__(self, connection: sqlite3.Connection, store: str, there: bool):
        self.connection = connection
        self.store = store
        self.present = there

    def context(self, job: RestoreJob, now_ms: int, listed_max: int) -> RestoreContext:
        return RestoreContext(
            self.connection,
            self.store,
            schema=int(meta.read(self.connection, "x_schema") or 0),
            now_ms=now_ms,
            cut_ms=job.manifest.cut_ms,
            revive=job.revive,
            present=self.present,
            settings_file=job.target.settings_file,
            listed_max=listed_max,
        )

    def apply(self, context: RestoreContext, highest: int) -> int:
        """Calls `restored` of the subsystem, and raises numbers. Returns the highest number that
        was given out of the first raised table; `highest` is a lower limit for it."""
        declaration, before = declaration_of(self.store), 0
        sequences = {table: self._sequence(table) for table in declaration.restore.raised}
        self.connection.execute("BEGIN IMMEDIATE")
        changed = row_digest.find_changes(self.connection, self.store)
        if declaration.restored:
            module = import_module(declaration.restored, appliance.__name__)
            module.restored(self.connection, context)
            if context.damaged:  # SQLite refuses every further write of this transaction
                self._leave_present(context)
                module.restored(self.connection, context)
        row_digest.renew(self.connection, self.store, changed)
        for index, table in enumerate(sequences):
            number = max(sequences[table], 0 if index else highest)
            before = before or number
            if meta.exists(self.connection, table):
                keep_sequence(self.connection, table, number + JUMP)
            elif number:  # the migration that adds the table begins with this number
                self.connection.execute(meta.SET, (f"sequence:{table}", str(number + JUMP)))
        self.connection.execute("COMMIT")
        return before

    def _leave_present(self, context: RestoreContext) -> None:
        """Begins again without the store before, which is damaged."""
        self.connection.execute("ROLLBACK")
        self.connection.execute("DETACH present")
        self.present = context.present = False
        self.connection.execute("BEGIN IMMEDIATE")

    def _sequence(self, table: str) -> int:
        numbers = [0]
        for schema in ("main", "present") if self.present else ("main",):
            with suppress(sqlite3.OperationalError):
                row = self.connection.execute(_SEQUENCES[schema], (table,)).fetchone()
                numbers.append(row[0] if row else 0)
        return max(numbers)


@contextmanager
def open_restored(file: Path, present: Path, store: str, mode: Mode) -> Iterator[RestoredStore]:
    """The new file of a store, with the one before attached if it can be read in `mode`."""
    with closing(_connect(file)) as connection:
        there = is_readable(present, mode)
        if there:
            uri = f"{present.absolute().as_uri()}?mode={mode}"
            connection.execute("ATTACH ? AS present", (uri,))
        yield RestoredStore(connection, store, there)


def is_readable(database: Path, mode: Mode) -> bool:
    """Whether SQLite opens the file and its schema. Rows may still be damaged."""
    if not database.is_file() or suspect_marker(database).exists():
        return False
    try:
        with closing(open_database(database, mode)) as connection:
            return meta.has_tables(connection)
    except sqlite3.Error:
        return False


def check_references(files: Mapping[str, Path], before: Mapping[str, Path]) -> None:
    """Refuses a combination of stores in which one names what another lacks, if the stores before
    had it. Raises RestoreRefused with the reason. Files that can't be read are skipped."""
    for store in files:
        for reference in declaration_of(store).restore.references:
            broken, known = (
                _values(each.get(store), reference.sql)
                - _values(each.get(reference.store), reference.named)
                for each in (files, before)
            )
            if broken - known:
                raise RestoreRefused(
                    f"{store} and {reference.store} don't fit: {reference.says}"
                    f" ({', '.join(sorted(broken - known)[:5])})",
                    hint=f"restore both: --store {store} --store {reference.store}",
                )


def _values(file: Path | None, sql: str) -> frozenset[str]:
    if file is None or not file.is_file():
        return frozenset()
    with suppress(sqlite3.Error), closing(_connect(file)) as connection:
        return frozenset(str(row[0]) for row in connection.execute(sql))
    return frozenset()


def _connect(file: Path) -> sqlite3.Connection:
    connection = open_database(file, "rw")
    connection.execute("PRAGMA synchronous = FULL")
    return connection
