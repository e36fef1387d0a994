"""A connection that reads: never writes, never without a row limit, never for long."""

import contextlib
import sqlite3
from _queue import SimpleQueue  # native, also when the standard modules are patched
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from appliance.kernel.clock import Clock
from appliance.kernel.errors import Unavailable

BUSY_TIMEOUT_MS = 5000
STEPS_BETWEEN_CHECKS = 20_000


class ReadTooLong(Unavailable):
    sentence = "the query took too long and was stopped"
    advice = "ask for less: a smaller limit, a narrower filter"


class Reader:
    """What a read function sees. One per thread."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        clock: Clock,
        *,
        seconds_max: float | None = None,
        query_only: bool = True,
    ) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.query_only = query_only
        self._clock = clock
        self._seconds_max = seconds_max
        self._deadline = float("inf")
        if seconds_max is not None:
            connection.set_progress_handler(self._is_late, STEPS_BETWEEN_CHECKS)

    def rows(self, sql: str, parameters: Sequence[Any] = (), *, limit: int) -> list[Any]:
        """At most `limit` rows, whatever the statement says."""
        cursor = self.execute(sql, parameters)
        rows = cursor.fetchmany(limit)
        cursor.close()
        return rows

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """The first row, or None."""
        cursor = self.execute(sql, parameters)
        row = cursor.fetchone()
        cursor.close()
        return row

    @contextlib.contextmanager
    def deadline(self) -> Iterator[None]:
        """Stops statements inside that go on for longer than the setting allows."""
        self._deadline = self._clock.monotonic() + (self._seconds_max or float("inf"))
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname == "SQLITE_INTERRUPT":
                raise ReadTooLong from None
            raise
        finally:
            self._deadline = float("inf")

    def _is_late(self) -> bool:
        return self._clock.monotonic() > self._deadline


def open_connection(
    path: Path,
    synchronous: str,
    database: Any = None,
    *,
    query_only: bool = False,
    busy_ms: int | None = None,
) -> sqlite3.Connection:
    """A connection in autocommit mode with the pragmas of hub spec §3.4.

    With a peewee `database` the connection is that database's own for this thread, so
    models and raw statements share it. The file must exist. `busy_ms`: how long it waits for
    locks of others, if not for BUSY_TIMEOUT_MS.
    """
    if database is not None:
        with _alone():
            database.connect(reuse_if_open=True)  # an opening that failed half-way
        connection: sqlite3.Connection = database.connection()
    else:
        uri = path.absolute().as_uri() + "?mode=rw"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, cached_statements=256)
    for pragma in (
        f"busy_timeout = {BUSY_TIMEOUT_MS if busy_ms is None else busy_ms}",
        "journal_mode = WAL",
        "foreign_keys = ON",
        f"synchronous = {synchronous}",
        "wal_autocheckpoint = 0",  # the Checkpointer does it, off the writer's path
        "temp_store = MEMORY",
        f"query_only = {'ON' if query_only else 'OFF'}",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


def close_connection(connection: sqlite3.Connection, database: Any = None) -> None:
    """What `open_connection` made, in the same thread."""
    if database is None:
        connection.close()
        return
    with _alone():
        database.close()


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One thread at a time. peewee's own lock around connecting and closing is a greenlet's
    under the server, and a native thread that had to wait for it would wait for ever."""
    _turn.get()
    try:
        yield
    finally:
        _turn.put(None)


_turn: SimpleQueue[None] = SimpleQueue()  # as a lock that nobody patches
_turn.put(None)
