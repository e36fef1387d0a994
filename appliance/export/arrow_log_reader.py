"""Reads the log into Arrow columns with the ADBC driver, without Python objects for values.

The driver has its own copy of SQLite. Two copies in one process must not open the same file,
because one of them releases the locks of the other when it closes the file. So a process reads
a log with only one of them.
"""

import importlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any

from appliance.export import segment, table_writer
from appliance.export.segment import Run
from appliance.export.settings import Format
from appliance.export.source import (
    DATA,
    READ,
    TS,
    Batch,
    EventLog,
    LogUnreadable,
    moment_of,
    open_log,
)
from appliance.kernel.datadir import DataDir
from appliance.kernel.prefetch import prefetch

ROWS = table_writer.ROW_GROUP_ROWS
_BUSY_TIMEOUT_MS = 5_000


@contextmanager
def open_fast(datadir: DataDir, format_name: Format) -> Iterator[EventLog]:
    """Open the log with the ADBC driver if possible, else like `open_log`."""
    connection = _connect(datadir) if format_name == "parquet" else None
    if connection is None:
        with open_log(datadir) as log:
            yield log
        return
    try:
        yield ArrowLog(datadir, connection)
    finally:
        connection.close()


class ArrowLog(EventLog):
    """An EventLog whose `read` returns batches of Arrow arrays."""

    def batches(self, after: int) -> Generator[tuple[int, Batch], None, None]:
        """Read each batch while the one before is written. No other query may run meanwhile."""
        return prefetch(super().batches(after))

    def read(self, after: int) -> Batch | None:
        with self._cursor(ROWS) as cursor:
            cursor.execute(READ, (after, ROWS))
            table = cursor.fetch_arrow_table()
        return Columns(table) if table.num_rows else None

    def _ask(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self._cursor(1) as cursor:
            cursor.execute(sql, parameters or None)
            return cursor.fetchall()  # type: ignore[no-any-return]

    @contextmanager
    def _cursor(self, rows: int) -> Iterator[Any]:
        """The driver infers types from the first `rows` rows, so pass the number of all rows."""
        try:
            with self._connection.cursor() as cursor:
                cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(rows)})
                yield cursor
        except _errors() as error:
            raise LogUnreadable(f"cannot read the hub's database: {error}") from None


class Columns:
    """A batch of Arrow arrays."""

    def __init__(self, table: Any) -> None:
        self._columns = table.columns
        self.ids: Sequence[int] = table.column(0).to_pylist()
        self._columns[TS] = self._times(table.column(TS))

    def first_ms(self, index: int) -> int:
        return int(self._columns[TS][index].as_py().timestamp() * 1000)

    def part(self, start: int, stop: int) -> list[Any]:
        return [column.slice(start, stop - start) for column in self._columns]

    def payload_bytes(self, start: int, stop: int) -> int:
        compute = importlib.import_module("pyarrow.compute")
        lengths = compute.binary_length(self._columns[DATA].slice(start, stop - start))
        return int(compute.sum(lengths).as_py())

    def _times(self, texts: Any) -> Any:
        try:
            return table_writer.times(texts)
        except ValueError:
            for event_id, text in zip(self.ids, texts.to_pylist(), strict=True):
                moment_of(event_id, text)  # raises an error with the id of the invalid event
            raise

    def runs(self) -> list[Run]:
        arrow = importlib.import_module("pyarrow")
        compute = importlib.import_module("pyarrow.compute")
        days = self._columns[TS].cast(arrow.timestamp("us")).cast(arrow.date32(), safe=False)
        ids, last = self._columns[0], len(self.ids) - 1
        other_day = compute.not_equal(days.slice(1), days.slice(0, last))
        steps = compute.subtract(ids.slice(1), ids.slice(0, last))
        ends = compute.or_(other_day, compute.greater_equal(steps, segment.JUMP))
        cuts = [index + 1 for index in compute.indices_nonzero(ends).to_pylist()]
        return [
            Run(start, stop, str(days[start].as_py()))
            for start, stop in pairwise([0, *cuts, last + 1])
        ]


def _connect(datadir: DataDir) -> Any:
    try:
        driver = importlib.import_module("adbc_driver_sqlite.dbapi")
    except ImportError:
        return None
    uri = datadir.database("hub").absolute().as_uri() + "?mode=ro"
    with suppress(*_errors()):
        connection = driver.connect(uri, autocommit=True)
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}").fetchall()
                cursor.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        except BaseException:
            connection.close()
            raise
        return connection
    return None


def _errors() -> tuple[type[Exception], ...]:
    return (importlib.import_module("adbc_driver_manager").Error,)
