"""The checks of `checks`, in the driver. With few rows, a query is mostly planning.

The results are the same. It leaves larger tables, and columns without a value, to the queries.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import parquet
from pyarrow.lib import ArrowException

from spark.checks import NOT_NULL, RANGE, REFERENCE, UNIQUE, TableCheck
from spark.results import CheckResult

ROWS_MAX = 4_000_000  # rows of a table; a check for uniqueness takes 16 bytes of each
IDS_MAX = 200_000  # different ids that refer to another table
EPOCHS_MAX = 16  # different epochs in a batch
BATCH_ROWS = 65_536
UNREADABLE = (ArrowException, OSError, UnicodeDecodeError)  # the query reports why

Files = Callable[[str], Sequence[Path]]


class NotCountable(Exception):
    """A query has to count instead."""


def run(checks: Sequence[TableCheck], files: Files, whole: Files) -> list[CheckResult] | None:
    """Results in the order of `checks`. `files` are those of the rows to check, by table; `whole`
    are all files of the tables that references point into.

    None if a query has to count: other kinds of checks, more than `ROWS_MAX` rows or `IDS_MAX`
    ids, columns without a value where they must be unique, or a file that can't be read.
    """
    results: dict[str, CheckResult] = {}
    try:
        for table in dict.fromkeys(check.table for check in checks):
            mine = [check for check in checks if check.table == table]
            results |= _table(mine, files(table), whole)
    except (NotCountable, *UNREADABLE):
        return None
    return [results[check.name] for check in checks]


def batches(files: Iterable[Path], columns: Sequence[str]) -> Iterator[Any]:
    """The rows of these files. Raises NotCountable if they are more than `ROWS_MAX`."""
    rows = 0
    for path in files:
        with parquet.ParquetFile(path, read_dictionary=list(columns)) as file:
            rows += file.metadata.num_rows
            if rows > ROWS_MAX:
                raise NotCountable
            yield from file.iter_batches(BATCH_ROWS, columns=list(columns))


def _table(
    checks: Sequence[TableCheck], files: Sequence[Path], whole: Files
) -> dict[str, CheckResult]:
    counters = [_counter(check) for check in checks]
    columns = sorted({column for check in checks for column in check.columns})
    rows = 0
    for batch in batches(files, columns):
        rows += batch.num_rows
        for counter in counters:
            counter.add(batch)
    return {
        counter.check.name: CheckResult(
            counter.check.name,
            counter.check.table,
            counter.check.severity,
            counter.failed(whole),
            -1 if counter.check.kind == REFERENCE else rows,
        )
        for counter in counters
    }


class _Counter(ABC):
    def __init__(self, check: TableCheck) -> None:
        self.check = check
        self._failed = 0

    @abstractmethod
    def add(self, batch: Any) -> None:
        """Count the rows of a batch."""

    def failed(self, whole: Files) -> int:
        return self._failed


class _NotNull(_Counter):
    def add(self, batch: Any) -> None:
        self._failed += batch.column(self.check.columns[0]).null_count


class _Range(_Counter):
    def add(self, batch: Any) -> None:
        values = batch.column(self.check.columns[0]).drop_null().to_numpy()
        if self.check.low is not None:
            self._failed += int(np.count_nonzero(values < self.check.low))
        if self.check.high is not None:
            self._failed += int(np.count_nonzero(values > self.check.high))


class _Unique(_Counter):
    """Numbers that are unique within a text."""

    def __init__(self, check: TableCheck) -> None:
        super().__init__(check)
        self._numbers: dict[str, list[np.ndarray]] = {}

    def add(self, batch: Any) -> None:
        for text, chosen in by_text(batch.column(self.check.columns[0])):
            numbers = batch.column(self.check.columns[1])
            if numbers.null_count or str(numbers.type) != "int64":
                raise NotCountable
            self._numbers.setdefault(text, []).append(numbers.to_numpy()[chosen])

    def failed(self, whole: Files) -> int:
        count = 0
        for some in self._numbers.values():
            numbers = np.sort(np.concatenate(some))  # mostly in order, so faster than a hash table
            count += int(np.count_nonzero(numbers[1:] == numbers[:-1]))
        return count


class _Reference(_Counter):
    def __init__(self, check: TableCheck) -> None:
        super().__init__(check)
        self._ids: set[str | None] = set()

    def add(self, batch: Any) -> None:
        self._ids.update(_values(batch.column(self.check.columns[0])))
        if len(self._ids) > IDS_MAX:
            raise NotCountable

    def failed(self, whole: Files) -> int:
        assert self.check.other is not None
        table, column = self.check.other
        missing = self._ids - {None}
        if missing:
            for batch in batches(whole(table), [column]):
                missing.difference_update(_values(batch.column(column)))
        return len(missing)


def _counter(check: TableCheck) -> _Counter:
    if check.kind == UNIQUE and len(check.columns) == 2:
        return _Unique(check)
    simple: dict[str, type[_Counter]] = {NOT_NULL: _NotNull, RANGE: _Range, REFERENCE: _Reference}
    if check.kind not in simple:
        raise NotCountable
    return simple[check.kind](check)


def _values(column: Any) -> list[str | None]:
    values: list[str | None] = column.unique().to_pylist()
    return values


def by_text(column: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Each text with a mask of its rows. Raises NotCountable without a text, or with too many."""
    encoded = column.dictionary_encode()
    if encoded.null_count or len(encoded.dictionary) > EPOCHS_MAX:
        raise NotCountable
    indices = encoded.indices.to_numpy()
    for index, text in enumerate(encoded.dictionary.to_pylist()):
        yield text, indices == index
