"""A read-only connection whose reads are limited in rows, bytes and time."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from appliance.kernel.clock import Clock
from appliance.kernel.errors import Unavailable
from appliance.kernel.page import take_page
from appliance.kernel.readlimit import ReadLimit, ReadStopped, is_interrupt
from appliance.kernel.store_files import StoreFiles, accept_any_text

T = TypeVar("T")
Parameters = Sequence[Any] | Mapping[str, Any]

BUSY_TIMEOUT_MS = 5000
STEPS_BETWEEN_CHECKS = 20_000  # most reads end before the first check
PAGE_BYTES_MAX = 1 << 20  # rows in one page; the rest is on the next


@contextlib.contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Show one database state to all statements inside."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.rollback()


class ReadTooLong(Unavailable):
    default_message = "the query took too long and was stopped"
    default_hint = "narrow the query: use a smaller limit, a channel or a topic"


class ReadCancelled(Unavailable):
    default_message = "the query was stopped because its client disconnected"


class Reader:
    """A read function's argument. One per thread."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        clock: Clock,
        *,
        seconds_max: float | None = None,
        query_only: bool = True,
        steps: int = STEPS_BETWEEN_CHECKS,
        files: StoreFiles | None = None,
    ) -> None:
        """Take the connection. `files`: a shared store's; when they were replaced, the reader is
        too."""
        self.connection = connection
        self.files = files
        self.execute = connection.execute
        self.query_only = query_only
        self.limit = ReadLimit(clock, seconds_max, PAGE_BYTES_MAX)
        if seconds_max is not None:
            self.limit.watch(connection, steps)

    def page(
        self,
        sql: str,
        parameters: Parameters = (),
        *,
        limit: int,
        make: Callable[[Any], T],
        size: Callable[[T], int],
    ) -> tuple[list[T], bool]:
        """Return a page with rows converted by `make`, and whether there are more.

        The page has at most `limit` rows and one page's bytes by `size`. One more row is read to
        see whether there are more, so a LIMIT in the statement must allow that row.
        """
        with contextlib.closing(self.execute(sql, parameters)) as cursor:
            return take_page(map(make, cursor), limit, self.limit.page_bytes_max, size)

    def rows(self, sql: str, parameters: Parameters = (), *, limit: int) -> list[Any]:
        """Return at most `limit` rows from the statement's result."""
        return self.execute(sql, parameters).fetchmany(limit)

    def row(self, sql: str, parameters: Parameters = ()) -> Any:
        """Return the first row, or None."""
        return self.execute(sql, parameters).fetchone()

    @contextlib.contextmanager
    def deadline(self, cancelled: Callable[[], bool] | None = None) -> Iterator[None]:
        """Stop the block when its time is over, or once `cancelled` is true."""
        self.limit.start(cancelled)
        try:
            self.limit.check()
            yield
        except ReadStopped:
            raise self._reason(cancelled) from None
        except sqlite3.OperationalError as error:
            if is_interrupt(error):
                raise self._reason(cancelled) from None
            raise
        finally:
            self.limit.end()

    @staticmethod
    def _reason(cancelled: Callable[[], bool] | None) -> Unavailable:
        return ReadCancelled() if cancelled is not None and cancelled() else ReadTooLong()


def open_connection(
    path: Path, synchronous: str, *, query_only: bool = False, read_only: bool = False
) -> sqlite3.Connection:
    """Open a connection in autocommit mode with the pragmas from hub spec §3.4.

    The file must exist. `read_only`: SQLite can't change the file, nor its journal mode.
    """
    uri = path.absolute().as_uri() + f"?mode={'ro' if read_only else 'rw'}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, cached_statements=256)
    if not query_only:
        accept_any_text(connection)
    try:
        for pragma in (
            f"busy_timeout = {BUSY_TIMEOUT_MS}",
            "journal_mode" if read_only else "journal_mode = WAL",
            "foreign_keys = ON",
            f"synchronous = {synchronous}",
            "wal_autocheckpoint = 0",  # done by the Checkpointer in the background
            "temp_store = MEMORY",
            f"query_only = {'ON' if query_only else 'OFF'}",
        ):
            connection.execute(f"PRAGMA {pragma}").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection
