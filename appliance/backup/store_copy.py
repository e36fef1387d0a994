"""Copies a pinned store to a separate file, and checks and counts the copy's content."""

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

from msgspec import UNSET, UnsetType

from appliance.backup.cut import PinnedStore, not_copied, refusal
from appliance.backup.errors import BackupNotWritable
from appliance.backup.manifest import StoreFacts
from appliance.checks.backup_rules import rules_of
from appliance.kernel import event_ids, meta
from appliance.kernel.errors import ApplianceError
from appliance.kernel.ownership import open_own
from appliance.kernel.store_declaration import DECLARATIONS, declaration_of, file_of
from appliance.kernel.store_errors import is_damage, sqlite_name

PAGES_AT_ONCE = 1024
PRINCIPALS_MAX = 1_000
_WRITING = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY")


def check(connection: sqlite3.Connection, store: str) -> None:
    """Check the copy. Raises StoreNotCopied if the copy, and so the store, is damaged."""
    try:
        result = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        raise not_copied(store, f"its copy can't be read: {error}") from error
    if result != "ok":
        raise not_copied(store, f"its copy is damaged: {result}")


def facts_of(
    connection: sqlite3.Connection,
    store: str,
    *,
    held_by_other: bool = False,
    missing_blobs: int | UnsetType = UNSET,
) -> StoreFacts:
    """Return the store id, schema and row counts."""
    declaration = declaration_of(store)
    head = connection.execute(declaration.head).fetchone() if declaration.head else None
    return StoreFacts(
        file=file_of(store),
        store_id=meta.read(connection, declaration.id_key) or "",
        schema=int(meta.read(connection, "x_schema") or 0),
        rows=row_counts(connection),
        last_event_id=event_ids.newest(connection) if declaration.numbers_events else 0,
        held_by_other=held_by_other or UNSET,
        missing_blobs=missing_blobs,
        head=head[0] if head else UNSET,
    )


def find_differences(expected: StoreFacts, actual: StoreFacts) -> Iterator[str]:
    """Yield the differences between a store and the manifest."""
    for table in sorted(expected.rows.keys() | actual.rows.keys()):
        before, now = expected.rows.get(table), actual.rows.get(table)
        if before is None or now is None:
            yield f"the table {table} is {'missing' if now is None else 'not in the manifest'}"
        elif before != now:
            yield f"{table} has {now:,} rows; the manifest says {before:,}"
    for name in ("store_id", "schema", "last_event_id", "missing_blobs", "head"):
        before, now = getattr(expected, name), getattr(actual, name)
        if name == "missing_blobs" and before is UNSET:  # made before the store named files
            continue
        if before != now:
            yield f"{name} is {now!r}; the manifest says {before!r}"


def count_nouns(stores: Mapping[str, StoreFacts]) -> dict[str, int]:
    """Return the row count for each noun that an appliance store declares."""
    return {
        noun: stores[store].rows.get(table, 0) if store in stores else 0
        for store in DECLARATIONS
        for noun, table in rules_of(store).counted.items()
    }


def principals_in(connection: sqlite3.Connection, authors: str) -> tuple[str, ...]:
    """Return the rows that the query `authors` selects, sorted, at most 1,000. Empty if the
    table is missing, as in a file that another program made."""
    try:
        rows = connection.execute(authors).fetchmany(PRINCIPALS_MAX)
    except sqlite3.OperationalError:
        return ()
    return tuple(sorted(row[0] for row in rows))


def copy(pinned: PinnedStore, target: Path, progress: Callable[[int, int], None]) -> None:
    """Copy the pinned connection's content to `target`, readable by the owner only.

    `progress` is called with the copied bytes and the total bytes. Raises BackupNotWritable,
    StoreNotCopied if the store is damaged, CutNotPossible if another program locks the store.
    """
    try:
        os.close(open_own(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except OSError as error:
        raise _not_writable(error.strerror or str(error)) from error
    try:
        with closing(sqlite3.connect(target, isolation_level=None)) as connection:
            # The copy is compressed at once and then removed: only the compressed file is synced.
            connection.execute("PRAGMA synchronous = OFF")
            # Otherwise SQLite maps a shared memory file for the copy's log. On a full tmpfs the
            # system ends a process that writes to such a page (SIGBUS).
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            page_bytes = pinned.connection.execute("PRAGMA page_size").fetchone()[0]

            def report(status: int, remaining: int, total: int) -> None:
                del status
                progress((total - remaining) * page_bytes, total * page_bytes)

            pinned.connection.backup(connection, pages=PAGES_AT_ONCE, progress=report)
            # A copied store with a write-ahead log would need a log file too.
            connection.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        raise _translate(pinned, error) from error


def tables(connection: sqlite3.Connection) -> list[str]:
    """Return a store's tables, without full-text indexes, index parts, and SQLite's own tables."""
    query = "SELECT name, sql FROM sqlite_schema WHERE type = 'table' ORDER BY name"
    rows = connection.execute(query).fetchall()
    virtual = [name for name, sql in rows if sql and sql.upper().startswith("CREATE VIRTUAL")]
    ignored = ("sqlite_", *(f"{name}_" for name in virtual))
    return [name for name, _ in rows if name not in virtual and not name.startswith(ignored)]


def row_counts(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the row count for each table that a manifest counts."""
    quoted = {name: '"' + name.replace('"', '""') + '"' for name in tables(connection)}
    return {
        name: int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
        for name, table in quoted.items()
    }


def _translate(pinned: PinnedStore, error: sqlite3.Error) -> ApplianceError:
    if sqlite_name(error).startswith(_WRITING):
        return _not_writable(str(error))
    if is_damage(error):
        return not_copied(pinned.store, f"it is damaged: {error}")
    return refusal(pinned.store, pinned.path.parent, error)


def _not_writable(reason: str) -> BackupNotWritable:
    return BackupNotWritable(f"the backup can't be written: {reason}")
