"""A workspace's database: opened read-only, without a hub and without writing.

Another process may write at the same time; each query sees one snapshot. Queries are limited in
rows and seconds. Close the connection soon: an open reader prevents checkpoints of the
write-ahead log.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from appliance.kernel import store_files
from appliance.kernel.clock import Clock, SystemClock
from appliance.kernel.errors import Unavailable
from appliance.kernel.readlimit import ReadLimit, ReadStopped, is_interrupt
from appliance.sdk.closing import Closing

SCHEMA_VERSION = 1  # the tables in hub spec §3.1; the tables named x_… have no version
QUERY_SECONDS_MAX = 30.0
PAGE_BYTES_MAX = 16 * 1024 * 1024  # messages per search
Row = dict[str, Any]


class DatabaseUnreadable(Unavailable):
    code = "DATABASE_UNREADABLE"
    default_message = "the workspace's database cannot be read"
    default_hint = "agentlip doctor"


class SchemaUnknown(Unavailable):
    code = "SCHEMA_UNKNOWN"
    default_message = "this program does not know the database schema"
    default_hint = "upgrade agentlip"


class QueryTooLong(Unavailable):
    code = "QUERY_TOO_LONG"
    default_message = f"the query took longer than {QUERY_SECONDS_MAX:.0f} s and was stopped"
    default_hint = "search a topic instead of a channel, or use a smaller --limit"


class WorkspaceDatabase(Closing):
    """One open database, read-only. Use as a context manager, and close soon."""

    def __init__(self, database: Path, clock: Clock | None = None) -> None:
        self._database = database
        self._limit = ReadLimit(clock or SystemClock(), QUERY_SECONDS_MAX, PAGE_BYTES_MAX)
        with readable_errors(database):
            self._connection = open_database(database)
            self._limit.watch(self._connection)
        try:
            with readable_errors(database):
                meta = dict(self._connection.execute("SELECT key, value FROM meta LIMIT 100"))
            _check_schema(meta)
        except BaseException:
            self._connection.close()
            raise
        self.db_id: str = meta.get("db_id", "")

    def close(self) -> None:
        self._connection.close()

    def counts(self) -> Row:
        """Return numbers for a status line, read from index ends."""
        query = (
            "SELECT (SELECT COALESCE(MAX(event_id), 0) FROM events) AS last_event_id,"
            " (SELECT COALESCE(MAX(rowid), 0) FROM messages) AS messages,"
            " (SELECT COUNT(*) FROM channels) AS channels LIMIT 1"
        )
        return self._rows(query, ())[0]

    def _rows(self, query: str, parameters: Sequence[Any]) -> list[Row]:
        self._limit.start()
        with readable_errors(self._database):
            cursor = self._connection.execute(query, parameters)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]


def open_database(database: Path) -> sqlite3.Connection:
    """Open a read-only connection, with or without a running hub."""
    try:
        return _connect(database, "ro")
    except sqlite3.OperationalError:
        # Reading a WAL database needs the -shm file, which cannot be created on a read-only medium.
        # With an empty log, the database file alone is complete.
        log = database.with_name(database.name + "-wal")
        if not database.exists() or (log.exists() and log.stat().st_size > 0):
            raise
        return _connect(database, "ro&immutable=1")


def read_column(database: Path, sql: str) -> list[str]:
    """Return a query's first column; nothing if the database can't be read."""
    with suppress(sqlite3.Error), closing(open_database(database)) as connection:
        return [row[0] for row in connection.execute(sql)]
    return []


def _connect(database: Path, mode: str) -> sqlite3.Connection:
    if database.exists() and not database.is_file():
        raise sqlite3.OperationalError("not a file")  # opening a FIFO would not end
    connection = store_files.open_database(database, mode)
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _check_schema(meta: dict[str, str]) -> None:
    version = meta.get("schema_version", "")
    if version != str(SCHEMA_VERSION):
        raise SchemaUnknown(
            f"the database has schema version {shorten(version) or 'unknown'};"
            f" this program knows {SCHEMA_VERSION}",
            details={"found": version, "known": SCHEMA_VERSION},
        )


@contextmanager
def readable_errors(database: Path) -> Iterator[None]:
    """Convert SQLite errors. The path may be shown: it is the caller's own file."""
    try:
        yield
    except ReadStopped:
        raise QueryTooLong from None
    except sqlite3.Error as error:
        if is_interrupt(error):
            raise QueryTooLong from None
        raise DatabaseUnreadable(f"cannot read {database}: {error}") from None


def shorten(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"
