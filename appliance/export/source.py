"""The log read from the hub's database, beside a running hub or alone. Never writes."""

import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from operator import itemgetter
from typing import Any, Protocol

from appliance.export import schema, segment
from appliance.export.segment import Run
from appliance.export.trouble import BadEvent
from appliance.kernel.clock import utc
from appliance.kernel.datadir import DataDir
from appliance.kernel.errors import Unavailable
from appliance.sdk.reader import open_database

ROWS = 20_000  # of one read: some 15 MB of text
TABLES_VERSION = 1
STORED = [column.name for column in schema.events() if column.name != "epoch"]
TS, DATA = STORED.index("ts"), STORED.index("data_json")
READ = f"SELECT {', '.join(STORED)} FROM events WHERE event_id > ? ORDER BY event_id LIMIT ?"


class LogUnreadable(Unavailable):
    code = "LOG_UNREADABLE"
    sentence = "the hub's database can't be read"
    advice = "agentlip doctor"


class Batch(Protocol):
    """Events in their order, column by column as in the schema but without the epoch."""

    @property
    def ids(self) -> Sequence[int]: ...

    def runs(self) -> list[Run]:
        """Parts that may each stand in one segment; see `segment.runs`."""

    def first_ms(self, place: int) -> int:
        """When that event was written."""

    def part(self, start: int, stop: int) -> list[Any]: ...

    def payload_bytes(self, start: int, stop: int) -> int: ...


class Rows:
    """A batch of Python's own values."""

    def __init__(self, columns: list[Sequence[Any]]) -> None:
        self._columns = columns
        self.ids: Sequence[int] = columns[0]

    def runs(self) -> list[Run]:
        return segment.runs(self.ids, _dates(self.ids, self._columns[TS]))

    def first_ms(self, place: int) -> int:
        return instant_ms(self.ids[place], self._columns[TS][place])

    def part(self, start: int, stop: int) -> list[Any]:
        if stop - start == len(self.ids):
            return list(self._columns)
        return [column[start:stop] for column in self._columns]

    def payload_bytes(self, start: int, stop: int) -> int:
        """Nearly: of characters beyond ASCII only the number is known."""
        return sum(map(len, self._columns[DATA][start:stop]))


class Log:
    """One connection to `db.sqlite3`; the epoch is read anew, for a restore may change it."""

    def __init__(self, datadir: DataDir, connection: Any) -> None:
        self._datadir = datadir
        self._connection = connection
        found = dict(self._ask("SELECT key, value FROM meta LIMIT 100"))
        if found.get("schema_version") != str(TABLES_VERSION):
            raise LogUnreadable(
                f"the database has schema version {found.get('schema_version', 'unknown')};"
                f" this program knows {TABLES_VERSION}"
            )
        self.workspace_id: str | None = found.get("db_id")

    @property
    def epoch(self) -> str:
        with told(), closing(open_database(self._datadir.database("auth"))) as connection:
            row = connection.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
        if row is None:
            raise LogUnreadable("the workspace has no epoch yet", hint="agentlipd up")
        return str(row[0])

    def newest(self) -> int:
        return int(self._ask("SELECT max(event_id) FROM events")[0][0] or 0)

    def before(self, event_id: int) -> int:
        """The newest event before that one; 0 where there is none."""
        sql = "SELECT max(event_id) FROM events WHERE event_id < ?"
        return int(self._ask(sql, event_id)[0][0] or 0)

    def count(self, after: int) -> int:
        return int(self._ask("SELECT count(*) FROM events WHERE event_id > ?", after)[0][0])

    def first_after(self, event_id: int) -> int | None:
        """When the next event was written, in milliseconds; None if there is none."""
        sql = "SELECT event_id, ts FROM events WHERE event_id > ? ORDER BY event_id LIMIT 1"
        found = self._ask(sql, event_id)
        return instant_ms(*found[0]) if found else None

    def read(self, after: int) -> Batch | None:
        """The next events; None at the end of the log."""
        found = self._ask(READ, after, ROWS)
        return Rows(list(zip(*found, strict=True))) if found else None

    def batches(self, after: int) -> Generator[tuple[int, Batch], None, None]:
        """All events above that one, each batch with the id of the event before it."""
        previous: int | None = None
        while (batch := self.read(after)) is not None:
            if previous is None:
                # Not `after`: since a restore that may lie in a history that is no more.
                previous = self.before(batch.ids[0])
            yield previous, batch
            previous = after = batch.ids[-1]

    @contextmanager
    def moment(self) -> Iterator[None]:
        """All that is read in the block is of one moment."""
        with told():
            self._connection.execute("BEGIN")
        try:
            yield
        finally:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        """A whole table, piece by piece, in the order of its rows."""
        with told():
            cursor = self._connection.execute(
                f"SELECT {', '.join(columns)} FROM {table} ORDER BY rowid"
            )
            while rows := cursor.fetchmany(ROWS):
                yield rows

    def _ask(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with told():
            return self._connection.execute(sql, parameters).fetchall()  # type: ignore[no-any-return]


@contextmanager
def open_log(datadir: DataDir) -> Iterator[Log]:
    with told():
        connection = open_database(datadir.database("hub"))
    with closing(connection):
        yield Log(datadir, connection)


def _dates(ids: Sequence[int], ts: Sequence[str]) -> Sequence[str] | str:
    """The day of each event, in UTC. Nearly all batches lie within one and are quick."""
    first, last = min(ts), max(ts)
    # What lies between two texts with the same beginning has that beginning too.
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
        raise BadEvent(f"event {event_id} has no time: {text[:40]!r}") from None


@contextmanager
def told() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise LogUnreadable(f"can't read the hub's database: {error}") from None
