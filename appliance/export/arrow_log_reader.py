"""Reads the log into Arrow columns with the ADBC driver, without Python objects for values.

The driver has a separate copy of SQLite. Two SQLite copies in one process must not open one file,
because closing the file in one copy releases the locks that the second copy holds. So a process
reads a log through only one copy.
"""

import importlib
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from appliance.export import table_writer
from appliance.export.logs import EVENTS, ExportedLog
from appliance.export.settings import Format
from appliance.export.source import Batch, LogUnreadable, StoredLog, instant_ms, open_log
from appliance.workspace.datadir import DataDir

ROWS = table_writer.ROW_GROUP_ROWS
_BUSY_TIMEOUT_MS = 5_000


@contextmanager
def open_fast(
    datadir: DataDir, format_name: Format, log: ExportedLog = EVENTS
) -> Iterator[StoredLog]:
    """Open the log with the ADBC driver if possible, else like `open_log`."""
    connection = _connect(datadir, log.store) if format_name == "parquet" else None
    if connection is None:
        with open_log(datadir, log) as reader:
            yield reader
        return
    with connection:
        yield ArrowLog(datadir, connection, log)


class ArrowLog(StoredLog):
    """A StoredLog whose `read` returns batches of Arrow arrays."""

    def batches(self, after: int) -> Generator[tuple[int, Batch], None, None]:
        """Read each batch in a thread while the previous batch is written. Without the thread,
        an export takes 1.15 to 1.4 times as long. No other query may run meanwhile."""
        batches = super().batches(after)
        with ThreadPoolExecutor(1) as reader:
            following = reader.submit(next, batches, None)
            while (batch := following.result()) is not None:
                following = reader.submit(next, batches, None)
                yield batch

    def read(self, after: int) -> Batch | None:
        with self._cursor(ROWS) as cursor:
            cursor.execute(self.log.rows_after, (after, ROWS))
            table = cursor.fetch_arrow_table()
        return _batch(table, self.log) if table.num_rows else None

    def _query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self._cursor(1) as cursor:
            cursor.execute(sql, parameters or None)
            return cursor.fetchall()  # type: ignore[no-any-return]

    @contextmanager
    def _cursor(self, rows: int) -> Iterator[Any]:
        """Open a cursor. The driver infers types from the first `rows` rows, so pass the total
        row count."""
        try:
            with self._connection.cursor() as cursor:
                cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(rows)})
                yield cursor
        except importlib.import_module("adbc_driver_manager").Error as error:
            raise LogUnreadable(f"cannot read the database for {self.log.store}: {error}") from None


def _batch(table: Any, log: ExportedLog) -> Batch:
    """Return the batch. Raises BadEvent for a row without a valid time."""
    compute = importlib.import_module("pyarrow.compute")
    ids, texts = table.column("event_id").to_pylist(), table.column("ts")
    try:
        columns = {
            column.name: table_writer.times(array) if "timestamp" in column.type else array
            for column, array in zip(log.stored_columns, table.columns, strict=True)
        }
        if columns["ts"].null_count:
            raise ValueError("a row without a time")
    except ValueError:
        list(map(instant_ms, ids, texts.to_pylist()))
        raise
    sizes = _integers(compute.binary_length(columns[log.payload])) if log.payload else []
    times_ms = _integers(columns["ts"].cast("timestamp[ms]", safe=False))
    return Batch(ids, times_ms, sizes, list(columns.values()))


def _integers(array: Any) -> Sequence[int]:
    """Return an array without nulls, without a Python object for each number."""
    whole = array.cast("int64").combine_chunks()
    return memoryview(whole.buffers()[1]).cast("q")[whole.offset :][: len(whole)]


def _connect(datadir: DataDir, store: str) -> Any:
    """Connect to the store; return None without the driver, or if the driver can't read the
    file, as on a read-only medium."""
    try:
        driver = importlib.import_module("adbc_driver_sqlite.dbapi")
    except ImportError:
        return None
    uri = datadir.database(store).absolute().as_uri() + "?mode=ro"
    connection = driver.connect(uri, autocommit=True)
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}").fetchall()
            cursor.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except driver.Error:
        connection.close()
        return None
    return connection
