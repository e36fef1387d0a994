"""Checks tables by rows: a condition, its severity, and one pass to count.

    TableCheck("messages.sender", "messages", WARN, "sender IS NULL")

A failed error prevents the new version from being published; a warning is reported.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as f

from spark import results
from spark.errors import ChecksFailed
from spark.progress import ProgressReporter
from spark.results import CheckResult

CONCURRENT_QUERIES_MAX = 4  # queries


class TableCheck(NamedTuple):
    """A table check, which has one of three kinds.

    failing  SQL that is true for each row that fails
    unique   columns that together are different in each row
    refers   a column, and the table in which a column with this name has its values
    """

    name: str
    table: str
    severity: str
    failing: str = ""
    unique: tuple[str, ...] = ()
    refers: tuple[str, str] | None = None


Tables = Callable[[str], DataFrame]


def run(
    checks: Sequence[TableCheck], tables: Tables, whole: Tables | None = None
) -> list[CheckResult]:
    """Return results in the order of `checks`. One query per table and one per reference, a few
    at a time: with few rows a query is mostly planning. If `tables` has only changed rows,
    `whole` has the tables that references point into."""
    queries: list[Callable[[], list[CheckResult]]] = []
    for table in dict.fromkeys(check.table for check in checks):
        mine = [check for check in checks if check.table == table]
        simple = [check for check in mine if check.failing]
        unique: list[TableCheck | None] = [check for check in mine if check.unique]
        first, *others = unique or [None]
        if first or simple:
            queries.append(partial(_rows, first, simple, tables(table)))
        queries += [partial(_rows, check, (), tables(table)) for check in others]
        references = [check for check in mine if check.refers]
        queries += [partial(_reference, check, tables, whole or tables) for check in references]
    with ThreadPoolExecutor(CONCURRENT_QUERIES_MAX) as pool:
        counted = [result for some in pool.map(lambda query: query(), queries) for result in some]
    names = [check.name for check in checks]
    return sorted(counted, key=lambda result: names.index(result.name))


def require_passed(checked: Sequence[CheckResult], progress: ProgressReporter) -> None:
    """Raise ChecksFailed, after all results, if a check with severity error failed."""
    if any(result.is_error for result in checked):
        for line in results.describe(checked):
            progress.say(line)
        raise ChecksFailed("the new tables failed a check with severity error")


def _rows(
    unique: TableCheck | None, simple: Sequence[TableCheck], frame: DataFrame
) -> list[CheckResult]:
    """Count the failing rows, in the same query as the UNIQUE check's groups."""
    names = [f"c{index}" for index in range(len(simple))]
    sums = [
        f.expr(f"count_if({check.failing}) AS {name}")
        for check, name in zip(simple, names, strict=True)
    ]
    sums.append(f.count(f.lit(1)).alias("n"))
    if unique is not None:
        groups, different = _groups(unique, frame)
        frame = groups.agg(*sums, different.alias("different"))
        sums = [f.sum(name).alias(name) for name in (*names, "n", "different")]
    (row,) = frame.agg(*sums).collect()
    rows = row["n"] or 0
    counted = [
        CheckResult(check.name, check.table, check.severity, row[name] or 0, rows)
        for check, name in zip(simple, names, strict=True)
    ]
    if unique is not None:
        duplicates = rows - (row["different"] or 0)
        counted.append(CheckResult(unique.name, unique.table, unique.severity, duplicates, rows))
    return counted


def _groups(unique: TableCheck, frame: DataFrame) -> tuple[GroupedData, Column]:
    """Return groups with the number of different rows in each. A numeric last column is counted
    as bits in words with 64 bits, which is exact and needs no shuffle or sort."""
    *others, last = unique.unique
    if dict(frame.dtypes)[last] != "bigint":
        return frame.groupBy(*unique.unique), f.lit(1)
    bit = f.expr(f"shiftleft(1L, cast(`{last}` & 63 as int))")
    return frame.groupBy(*others, f.shiftright(last, 6).alias("word")), f.bit_count(f.bit_or(bit))


def _reference(check: TableCheck, tables: Tables, whole: Tables) -> list[CheckResult]:
    assert check.refers is not None
    column, table = check.refers
    mine = tables(check.table).select(column).dropna().distinct()
    failed = mine.join(whole(table).select(column), column, "left_anti").count()
    return [CheckResult(check.name, check.table, check.severity, failed, -1)]
