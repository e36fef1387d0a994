"""Reads a log from the store's database, with or without a running hub. Never writes."""

import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from appliance.export import segment
from appliance.export.errors import BadEvent
from appliance.export.logs import EVENTS, LOGS, ExportedLog
from appliance.export.segment import Run
from appliance.kernel import meta
from appliance.kernel.clock import DAY_MS, utc
from appliance.kernel.errors import Unavailable
from appliance.sdk.database import open_database
from appliance.workspace.datadir import DataDir

ROWS = 20_000  # per read: about 15 MB text
TABLES_VERSION = 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
META = "SELECT key, value FROM meta LIMIT 100"


class LogUnreadable(Unavailable):
    code = "LOG_UNREADABLE"
    default_message = "a log's database cannot be read"
    default_hint = "agentlip doctor"


class Batch(NamedTuple):
    """Rows from a log, in order.

    times_ms  each row's time, in milliseconds
    sizes     each row's payload length
    columns   the schema's columns without the epoch, as sequences or as Arrow arrays
    """

    ids: Sequence[int]
    times_ms: Sequence[int]
    sizes: Sequence[int]
    columns: Sequence[Any]

    def runs(self) -> list[Run]:
        """Return the parts that may each be in one segment; see `segment.runs`."""
        days = [ms // DAY_MS for ms in self.times_ms]
        dates = {day: str((EPOCH + timedelta(days=day)).date()) for day in set(days)}
        return segment.runs(self.ids, [dates[day] for day in days])


class StoredLog:
    """One connection to a log. The epoch is read every time, because a restore may change the
    epoch."""

    def __init__(self, datadir: DataDir, connection: Any, log: ExportedLog = EVENTS) -> None:
        self.log = log
        self._datadir = datadir
        self._connection = connection
        notes = self._notes()
        version = notes.get("schema_version", "unknown")
        if version != str(TABLES_VERSION):
            raise LogUnreadable(
                f"the database has schema version {version}; this program knows {TABLES_VERSION}"
            )
        self.workspace_id: str | None = notes.get("db_id")

    def _notes(self) -> dict[str, str]:
        """Return the workspace notes, which are in the hub's database."""
        if self.log.store == EVENTS.store:
            return dict(self._query(META))
        hub = self._datadir.database(EVENTS.store)
        with sqlite_errors(), closing(open_database(hub)) as connection:
            return dict(connection.execute(META).fetchall())

    @property
    def epoch(self) -> str:
        auth = self._datadir.database("auth")
        with sqlite_errors("auth"), closing(open_database(auth)) as connection:
            epoch = meta.value(connection, "epoch")
        if epoch is None:
            raise LogUnreadable("the workspace has no epoch yet", hint="agentlipd up")
        return epoch

    def newest(self) -> int:
        """Return the newest event's number, or 0."""
        return int(self._query(self.log.newest)[0][0] or 0)

    def highest(self) -> int:
        """Return the highest number ever given to an event, even if the event was removed."""
        rows = self._query("SELECT seq FROM sqlite_sequence WHERE name = ?", self.log.table)
        return int(rows[0][0]) if rows else 0

    def before(self, event_id: int) -> int:
        """Return the newest event before that one, or 0."""
        return int(self._query(f"{self.log.newest} WHERE {self.log.key} < ?", event_id)[0][0] or 0)

    def count(self, after: int) -> int:
        query = f"SELECT count(*) FROM {self.log.table} WHERE {self.log.key} > ?"
        return int(self._query(query, after)[0][0])

    def first_after(self, event_id: int) -> int | None:
        """Return the next event's time in milliseconds, or None."""
        rows = self._query(self.log.first_after, event_id)
        return instant_ms(*rows[0]) if rows else None

    def read(self, after: int) -> Batch | None:
        """Return the next events; None at the end of the log."""
        rows = self._query(self.log.rows_after, after, ROWS)
        if not rows:
            return None
        columns = dict(zip(self.log.stored, zip(*rows, strict=True), strict=True))
        ids = columns["event_id"]
        times_ms = list(map(instant_ms, ids, columns["ts"]))
        sizes = [len(text) for text in columns[self.log.payload]] if self.log.payload else []
        return Batch(ids, times_ms, sizes, list(columns.values()))

    def batches(self, after: int) -> Generator[tuple[int, Batch], None, None]:
        """Yield all events above that one, each batch with the id of the event before the batch."""
        previous: int | None = None
        while (batch := self.read(after)) is not None:
            if previous is None:
                # Not `after`: a restore may have removed that event.
                previous = self.before(batch.ids[0])
            yield previous, batch
            previous = after = batch.ids[-1]

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Read one snapshot for the whole block."""
        with sqlite_errors(self.log.store):
            self._connection.execute("BEGIN")
        try:
            yield
        finally:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        """Yield all rows from a table in chunks, sorted by row id."""
        with sqlite_errors(self.log.store):
            cursor = self._connection.execute(
                f"SELECT {', '.join(columns)} FROM {table} ORDER BY rowid"
            )
            while rows := cursor.fetchmany(ROWS):
                yield rows

    def _query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with sqlite_errors(self.log.store):
            return self._connection.execute(sql, parameters).fetchall()  # type: ignore[no-any-return]


@contextmanager
def open_log(datadir: DataDir, log: ExportedLog = EVENTS) -> Iterator[StoredLog]:
    with sqlite_errors(log.store):
        connection = open_database(datadir.database(log.store))
    with closing(connection):
        yield StoredLog(datadir, connection, log)


def newest_numbers(datadir: DataDir) -> dict[str, int]:
    """Return the newest number for each log that exists."""
    numbers = {kind: newest_of(datadir, log) for kind, log in LOGS.items()}
    return {kind: number for kind, number in numbers.items() if number is not None}


def newest_of(datadir: DataDir, log: ExportedLog) -> int | None:
    """Return the newest row's number, 0 without rows; None if the store has no such log, because
    the subsystem never ran."""
    database = datadir.database(log.store)
    if not database.exists():
        return None
    with sqlite_errors(log.store), closing(open_database(database)) as connection:
        if not meta.exists(connection, log.table):
            return None
        (number,) = connection.execute(log.newest).fetchone()
    return int(number or 0)


def instant_ms(event_id: int, text: str | None) -> int:
    """Parse a time into milliseconds. Raises BadEvent."""
    try:
        return (datetime.fromisoformat(utc(text or "")) - EPOCH) // timedelta(milliseconds=1)
    except ValueError:
        shown = repr(text and text[:40])
        raise BadEvent(f"event {event_id} has an invalid time: {shown}") from None


@contextmanager
def sqlite_errors(store: str = "hub") -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise LogUnreadable(f"cannot read the database for {store}: {error}") from None
