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

from appliance.export import table_writer
from appliance.export.logs import EVENTS, ExportedLog
from appliance.export.prefetch import prefetch
from appliance.export.segment import Run
from appliance.export.settings import Format
from appliance.export.source import Batch, LogUnreadable, StoredLog, moment_of, open_log
from appliance.shared.segment_chain import JUMP
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
    try:
        yield ArrowLog(datadir, connection, log)
    finally:
        connection.close()


class ArrowLog(StoredLog):
    """A StoredLog whose `read` returns batches of Arrow arrays."""

    def batches(self, after: int) -> Generator[tuple[int, Batch], None, None]:
        """Read each batch while the one before is written. No other query may run meanwhile."""
        return prefetch(super().batches(after))

    def read(self, after: int) -> Batch | None:
        with self._cursor(ROWS) as cursor:
            cursor.execute(self.log.rows_after, (after, ROWS))
            table = cursor.fetch_arrow_table()
        return Columns(table, self.log) if table.num_rows else None

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
            raise LogUnreadable(f"cannot read the database of {self.log.store}: {error}") from None


class Columns:
    """A batch of Arrow arrays."""

    def __init__(self, table: Any, log: ExportedLog) -> None:
        self._ids = table.column("event_id")
        self.ids: Sequence[int] = self._ids.to_pylist()
        self._columns = [
            self._times(array) if column.type == "timestamp_us_utc" else array
            for column, array in zip(log.stored_columns, table.columns, strict=True)
        ]
        self._ts = self._columns[log.stored.index("ts")]
        if self._ts.null_count:
            self._refuse_times(table.column("ts"))
        self._payload = table.column(log.payload) if log.payload else None

    def first_ms(self, index: int) -> int:
        return int(self._ts[index].as_py().timestamp() * 1000)

    def part(self, start: int, stop: int) -> list[Any]:
        return [column.slice(start, stop - start) for column in self._columns]

    def payload_bytes(self, start: int, stop: int) -> int:
        if self._payload is None:
            return 0
        compute = importlib.import_module("pyarrow.compute")
        lengths = compute.binary_length(self._payload.slice(start, stop - start))
        return int(compute.sum(lengths).as_py())

    def _times(self, texts: Any) -> Any:
        try:
            return table_writer.times(texts)
        except ValueError:
            self._refuse_times(texts)
            raise

    def _refuse_times(self, texts: Any) -> None:
        """Raise BadEvent with the id of the first invalid time."""
        for event_id, text in zip(self.ids, texts.to_pylist(), strict=True):
            moment_of(event_id, text)

    def runs(self) -> list[Run]:
        arrow = importlib.import_module("pyarrow")
        compute = importlib.import_module("pyarrow.compute")
        days = self._ts.cast(arrow.timestamp("us")).cast(arrow.date32(), safe=False)
        ids, last = self._ids, len(self.ids) - 1
        other_day = compute.not_equal(days.slice(1), days.slice(0, last))
        steps = compute.subtract(ids.slice(1), ids.slice(0, last))
        ends = compute.or_(other_day, compute.greater_equal(steps, JUMP))
        cuts = [index + 1 for index in compute.indices_nonzero(ends).to_pylist()]
        return [
            Run(start, stop, str(days[start].as_py()))
            for start, stop in pairwise([0, *cuts, last + 1])
        ]


def _connect(datadir: DataDir, store: str) -> Any:
    try:
        driver = importlib.import_module("adbc_driver_sqlite.dbapi")
    except ImportError:
        return None
    uri = datadir.database(store).absolute().as_uri() + "?mode=ro"
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
