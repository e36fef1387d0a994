"""Reads the log from the hub's database, with or without a running hub. Never writes."""

import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from operator import itemgetter
from typing import Any, Protocol

from appliance.export import schema, segment
from appliance.export.errors import BadEvent
from appliance.export.segment import Run
from appliance.kernel.clock import utc
from appliance.kernel.datadir import DataDir
from appliance.kernel.errors import Unavailable
from appliance.sdk.reader import open_database

ROWS = 20_000  # per read: about 15 MB of text
TABLES_VERSION = 1
STORED = [column.name for column in schema.events() if column.name != "epoch"]
TS, DATA = STORED.index("ts"), STORED.index("data_json")
READ = f"SELECT {', '.join(STORED)} FROM events WHERE event_id > ? ORDER BY event_id LIMIT ?"


class LogUnreadable(Unavailable):
    code = "LOG_UNREADABLE"
    default_message = "the hub's database cannot be read"
    default_hint = "agentlip doctor"


class Batch(Protocol):
    """Events in order, as the columns of the schema without the epoch."""

    @property
    def ids(self) -> Sequence[int]: ...

    def runs(self) -> list[Run]:
        """Parts that may each be in one segment; see `segment.runs`."""

    def first_ms(self, index: int) -> int:
        """The time of the event, in milliseconds."""

    def part(self, start: int, stop: int) -> list[Any]: ...

    def payload_bytes(self, start: int, stop: int) -> int: ...


class Rows:
    """A batch of Python objects."""

    def __init__(self, columns: list[Sequence[Any]]) -> None:
        self._columns = columns
        self.ids: Sequence[int] = columns[0]

    def runs(self) -> list[Run]:
        return segment.runs(self.ids, _dates(self.ids, self._columns[TS]))

    def first_ms(self, index: int) -> int:
        return instant_ms(self.ids[index], self._columns[TS][index])

    def part(self, start: int, stop: int) -> list[Any]:
        if stop - start == len(self.ids):
            return list(self._columns)
        return [column[start:stop] for column in self._columns]

    def payload_bytes(self, start: int, stop: int) -> int:
        """An approximation: counts characters, not bytes."""
        return sum(map(len, self._columns[DATA][start:stop]))


class EventLog:
    """One connection to `db.sqlite3`. The epoch is read every time: a restore may change it."""

    def __init__(self, datadir: DataDir, connection: Any) -> None:
        self._datadir = datadir
        self._connection = connection
        meta = dict(self._ask("SELECT key, value FROM meta LIMIT 100"))
        if meta.get("schema_version") != str(TABLES_VERSION):
            raise LogUnreadable(
                f"the database has schema version {meta.get('schema_version', 'unknown')};"
                f" this program knows {TABLES_VERSION}"
            )
        self.workspace_id: str | None = meta.get("db_id")

    @property
    def epoch(self) -> str:
        with sqlite_errors(), closing(open_database(self._datadir.database("auth"))) as connection:
            row = connection.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
        if row is None:
            raise LogUnreadable("the workspace has no epoch yet", hint="agentlipd up")
        return str(row[0])

    def newest(self) -> int:
        return int(self._ask("SELECT max(event_id) FROM events")[0][0] or 0)

    def before(self, event_id: int) -> int:
        """The newest event before that one, or 0."""
        sql = "SELECT max(event_id) FROM events WHERE event_id < ?"
        return int(self._ask(sql, event_id)[0][0] or 0)

    def count(self, after: int) -> int:
        return int(self._ask("SELECT count(*) FROM events WHERE event_id > ?", after)[0][0])

    def first_after(self, event_id: int) -> int | None:
        """The time of the next event in milliseconds, or None."""
        sql = "SELECT event_id, ts FROM events WHERE event_id > ? ORDER BY event_id LIMIT 1"
        rows = self._ask(sql, event_id)
        return instant_ms(*rows[0]) if rows else None

    def read(self, after: int) -> Batch | None:
        """The next events; None at the end of the log."""
        rows = self._ask(READ, after, ROWS)
        return Rows(list(zip(*rows, strict=True))) if rows else None

    def batches(self, after: int) -> Generator[tuple[int, Batch], None, None]:
        """All events above that one, each batch with the id of the event before it."""
        previous: int | None = None
        while (batch := self.read(after)) is not None:
            if previous is None:
                # Not `after`: a restore may have removed that event.
                previous = self.before(batch.ids[0])
            yield previous, batch
            previous = after = batch.ids[-1]

    @contextmanager
    def moment(self) -> Iterator[None]:
        """All reads in the block see the same snapshot."""
        with sqlite_errors():
            self._connection.execute("BEGIN")
        try:
            yield
        finally:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        """All rows of a table in chunks, in the order of row ids."""
        with sqlite_errors():
            cursor = self._connection.execute(
                f"SELECT {', '.join(columns)} FROM {table} ORDER BY rowid"
            )
            while rows := cursor.fetchmany(ROWS):
                yield rows

    def _ask(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with sqlite_errors():
            return self._connection.execute(sql, parameters).fetchall()  # type: ignore[no-any-return]


@contextmanager
def open_log(datadir: DataDir) -> Iterator[EventLog]:
    with sqlite_errors():
        connection = open_database(datadir.database("hub"))
    with closing(connection):
        yield EventLog(datadir, connection)


def _dates(ids: Sequence[int], ts: Sequence[str]) -> Sequence[str] | str:
    """The day of each event in UTC. Most batches are within one day, which is fast."""
    first, last = min(ts), max(ts)
    # Texts that sort between two texts with the same prefix have that prefix too.
    if first[:11] == last[:11] and set(map(itemgetter(-1), filter(None, ts))) == {"Z"}:
        return _date(ids[0], first)
    return [_date(event_id, text) for event_id, text in zip(ids, ts, strict=True)]


def _date(event_id: int, text: str) -> str:
    return moment_of(event_id, text).date().isoformat()


def instant_ms(event_id: int, text: str) -> int:
    return int(moment_of(event_id, text).timestamp() * 1000)


def moment_of(event_id: int, text: str) -> datetime:
    try:
        return datetime.fromisoformat(utc(text))
    except ValueError:
        raise BadEvent(f"event {event_id} has an invalid time: {text[:40]!r}") from None


@contextmanager
def sqlite_errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise LogUnreadable(f"cannot read the hub's database: {error}") from None
