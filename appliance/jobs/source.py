"""The log read from the hub's database, beside a running hub or alone. Never writes."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple

from appliance.jobs import schema
from appliance.jobs.trouble import BadEvent
from appliance.kernel.clock import utc
from appliance.kernel.datadir import DataDir
from appliance.kernel.errors import Unavailable
from appliance.sdk.reader import open_database

ROWS = 20_000  # of one read: some 15 MB of text
_STORED = [column.name for column in schema.events() if column.name != "epoch"]
_TS = _STORED.index("ts")
_DATA = _STORED.index("data_json")


class LogUnreadable(Unavailable):
    code = "LOG_UNREADABLE"
    sentence = "the hub's database can't be read"
    advice = "agentlip doctor"


class Batch(NamedTuple):
    """Events in their order, column by column as in the schema but without the epoch."""

    columns: list[Sequence[Any]]
    dates: list[str]

    @property
    def ids(self) -> Sequence[int]:
        return self.columns[0]

    @property
    def ts(self) -> Sequence[str]:
        return self.columns[_TS]

    def part(self, start: int, stop: int) -> list[Sequence[Any]]:
        if stop - start == len(self.dates):
            return self.columns
        return [column[start:stop] for column in self.columns]

    def payload_bytes(self, start: int, stop: int) -> int:
        """Nearly: of characters beyond ASCII only the number is known."""
        return sum(map(len, self.columns[_DATA][start:stop]))


class Log:
    """One connection to `db.sqlite3`; the epoch is read anew, for a restore may change it."""

    def __init__(self, datadir: DataDir, connection: sqlite3.Connection) -> None:
        self._datadir = datadir
        self.connection = connection
        with told():
            row = connection.execute("SELECT value FROM meta WHERE key = 'db_id'").fetchone()
        self.workspace_id = str(row[0]) if row is not None else None

    @property
    def epoch(self) -> str:
        with told(), closing(open_database(self._datadir.database("auth"))) as connection:
            row = connection.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
        if row is None:
            raise LogUnreadable("the workspace has no epoch yet", hint="agentlipd up")
        return str(row[0])

    def newest(self) -> int:
        with told():
            row = self.connection.execute("SELECT max(event_id) FROM events").fetchone()
        return int(row[0] or 0)

    def before(self, event_id: int) -> int:
        """The newest event before that one; 0 where there is none."""
        sql = "SELECT max(event_id) FROM events WHERE event_id < ?"
        with told():
            row = self.connection.execute(sql, (event_id,)).fetchone()
        return int(row[0] or 0)

    def count(self, after: int) -> int:
        sql = "SELECT count(*) FROM events WHERE event_id > ?"
        with told():
            return int(self.connection.execute(sql, (after,)).fetchone()[0])

    def first_after(self, event_id: int) -> int | None:
        """When the next event was written, in milliseconds; None if there is none."""
        sql = "SELECT event_id, ts FROM events WHERE event_id > ? ORDER BY event_id LIMIT 1"
        with told():
            row = self.connection.execute(sql, (event_id,)).fetchone()
        return None if row is None else instant_ms(*row)

    def read(self, after: int, rows: int = ROWS) -> Batch | None:
        """The next events; None at the end of the log."""
        sql = (
            f"SELECT {', '.join(_STORED)} FROM events WHERE event_id > ? ORDER BY event_id LIMIT ?"
        )
        with told():
            found = self.connection.execute(sql, (after, rows)).fetchall()
        if not found:
            return None
        columns: list[Sequence[Any]] = list(zip(*found, strict=True))
        return Batch(columns, _dates(columns[0], columns[_TS]))

    @contextmanager
    def moment(self) -> Iterator[None]:
        """All that is read in the block is of one moment."""
        with told():
            self.connection.execute("BEGIN")
        try:
            yield
        finally:
            with suppress(sqlite3.Error):
                self.connection.execute("ROLLBACK")

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        """A whole table, piece by piece, in the order of its rows."""
        with told():
            cursor = self.connection.execute(
                f"SELECT {', '.join(columns)} FROM {table} ORDER BY rowid"
            )
            while rows := cursor.fetchmany(ROWS):
                yield rows


@contextmanager
def open_log(datadir: DataDir) -> Iterator[Log]:
    with told():
        connection = open_database(datadir.database("hub"))
    with closing(connection):
        yield Log(datadir, connection)


def _dates(ids: Sequence[int], ts: Sequence[str]) -> list[str]:
    """The day of each event, in UTC. Nearly all batches lie within one and are quick."""
    first, last = min(ts), max(ts)
    # What lies between two texts with the same beginning has that beginning too.
    if first[:11] == last[:11] and set(map(itemgetter(-1), filter(None, ts))) == {"Z"}:
        day = _date(ids[0], first)
        return list(repeat(day, len(ts)))
    return [_date(event_id, text) for event_id, text in zip(ids, ts, strict=True)]


def _date(event_id: int, text: str) -> str:
    return _moment(event_id, text).date().isoformat()


def instant_ms(event_id: int, text: str) -> int:
    return int(_moment(event_id, text).timestamp() * 1000)


def _moment(event_id: int, text: str) -> datetime:
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
