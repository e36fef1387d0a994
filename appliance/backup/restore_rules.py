"""Lets a store's subsystem change the new file, and raises numbers.

The store before the restore is attached as `present`, if readable.
"""

import sqlite3
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path

import appliance
from appliance.backup.errors import RestoreRefused
from appliance.backup.restore_job import Mode, RestoreJob
from appliance.backup.store_copy import row_counts
from appliance.kernel import meta
from appliance.kernel.event_ids import keep_sequence
from appliance.kernel.store_declaration import declaration_of
from appliance.kernel.store_files import open_database, suspect_marker
from appliance.shared.segment_chain import JUMP
from appliance.workspace.datadir import STORES, DataDir
from appliance.workspace.restoring import RestoreContext

_SEQUENCES = {
    "main": "SELECT seq FROM main.sqlite_sequence WHERE name = ?",
    "present": "SELECT seq FROM present.sqlite_sequence WHERE name = ?",
}


def apply(
    job: RestoreJob, store: str, file: Path, *, now_ms: int, known: int
) -> tuple[RestoreContext, int, dict[str, int]]:
    """Call the subsystem's `adjust_store` for a store's new file. The previous file is attached
    if readable. Raises numbers.

    `known`: a lower limit for the highest number given out. Return the first raised table's number,
    and each table's row count after the change.
    """
    present = job.target.database(store)
    with closing(open_database(file, "rw")) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        there = is_readable(present, job.mode)
        if there:
            uri = f"{present.absolute().as_uri()}?mode={job.mode}"
            connection.execute("ATTACH ? AS present", (uri,))
        context = RestoreContext(
            connection,
            store,
            now_ms=now_ms,
            cut_ms=job.manifest.cut_ms,
            revive=job.revive,
            present=there,
            settings_file=job.target.settings_file,
        )
        highest = _change(connection, store, context, known)
        if declaration_of(store).shared:  # others are switched by the next start
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
        return context, highest, row_counts(connection)


def _change(connection: sqlite3.Connection, store: str, context: RestoreContext, known: int) -> int:
    declaration, highest = declaration_of(store), 0
    tables = declaration.restore.raised
    given_out = [_find_highest(connection, table, context.present) for table in tables]
    connection.execute("BEGIN IMMEDIATE")
    if declaration.restored:
        module = import_module(declaration.restored, appliance.__name__)
        module.adjust_store(connection, context)
        if context.damaged:  # SQLite refuses every further write in this transaction
            connection.execute("ROLLBACK")
            connection.execute("DETACH present")
            context.present = False
            connection.execute("BEGIN IMMEDIATE")
            module.adjust_store(connection, context)
    for index, table in enumerate(tables):
        number = max(given_out[index], 0 if index else known)
        highest = highest or number
        keep_sequence(connection, table, number + JUMP)
    connection.execute("COMMIT")
    return highest


def _find_highest(connection: sqlite3.Connection, table: str, present: bool) -> int:
    numbers = [0]
    for schema in ("main", "present") if present else ("main",):
        with suppress(sqlite3.OperationalError):
            row = connection.execute(_SEQUENCES[schema], (table,)).fetchone()
            numbers.append(row[0] if row else 0)
    return max(numbers)


def check_references(job: RestoreJob, new: DataDir) -> None:
    """Check that no row would newly refer to a row that another store lacks. Raises
    RestoreRefused. Unreadable files have no rows."""
    before = {store: job.target.database(store) for store in STORES}
    after = before | {store: new.database(store) for store in job.stores}
    for store in STORES:
        for other, query, known in declaration_of(store).restore.references:
            lacked, lacking = (
                _select(files[store], query, job.mode) - _select(files[other], known, job.mode)
                for files in (before, after)
            )
            if broken := sorted(lacking - lacked):
                raise RestoreRefused(
                    f"rows in {store} would refer to rows that {other} lacks:"
                    f" {', '.join(broken[:5])}",
                    hint="restore both stores: agentlip backup restore"
                    f" {job.manifest.name} --store {store} --store {other} --plan",
                )


def _select(file: Path, query: str, mode: Mode) -> set[str]:
    with suppress(sqlite3.Error), closing(open_database(file, mode)) as connection:
        return {str(row[0]) for row in connection.execute(query)}
    return set()


def is_readable(database: Path, mode: Mode) -> bool:
    """Return whether SQLite opens the file and the schema. Rows may still be damaged."""
    if not database.is_file() or suspect_marker(database).exists():
        return False
    try:
        with closing(open_database(database, mode)) as connection:
            return meta.has_tables(connection)
    except sqlite3.Error:
        return False
