"""Checks tables by rows: a condition, its severity, and one pass to count.

    TableCheck("messages.sender", "messages", WARN, "sender IS NULL")

A failed error prevents the new version from being published; a warning is reported.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, GroupedData, Row
from pyspark.sql import functions as f

from spark import results
from spark.errors import ChecksFailed
from spark.progress import ProgressReporter
from spark.results import CheckResult
from spark.tables import DataFile, read_here

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
    """Return results by table, in `checks` order. One query per table, a few at a time:
    with few rows a query is mostly planning. If `tables` has only changed rows, `whole` has the
    tables that references point into."""

    def results_of(table: str) -> list[CheckResult]:
        mine = [check for check in checks if check.table == table]
        return run_by(mine, tables(table), whole or tables)[0]

    with ThreadPoolExecutor(CONCURRENT_QUERIES_MAX) as pool:
        named = dict.fromkeys(check.table for check in checks)
        return [result for some in pool.map(results_of, named) for result in some]


def run_here(
    checks: Sequence[TableCheck], files_of: Callable[[str], list[DataFile]],
    whole: Callable[[str], list[DataFile]],
) -> list[CheckResult]:  # fmt: skip
    """Return results for checks without `failing`, for tables with few rows, which the driver
    reads: a query takes a tenth of a core second."""
    counted = []
    for check in checks:
        columns = check.unique or (check.refers or ())[:1]
        rows, of = read_here(files_of(check.table), columns), -1
        if check.refers is not None:
            known = read_here(whole(check.refers[1]), columns)
            values, others = ({*each[0].unique().to_pylist()} for each in (rows, known))
            failed = len(values - others - {None})
        else:
            of = rows.num_rows
            failed = of - rows.group_by(list(columns)).aggregate([]).num_rows
        counted.append(CheckResult(check.name, check.table, check.severity, failed, of))
    return counted


def require_passed(checked: Sequence[CheckResult], progress: ProgressReporter) -> None:
    """Raise ChecksFailed, after all results, if a check with severity error failed."""
    if any(result.is_error for result in checked):
        for line in results.describe(checked):
            progress.say(line)
        raise ChecksFailed("the new tables failed a check with severity error")


def run_by(
    mine: Sequence[TableCheck], rows: DataFrame, whole: Tables, by: Sequence[str] = (),
    **more: str,
) -> tuple[list[CheckResult], list[Row]]:  # fmt: skip
    """Count a table's failing rows in one query, with the UNIQUE check's groups. Also count the
    rows that meet each condition in `more`, by the columns `by`. Rows with equal UNIQUE columns
    must have equal values in `by`."""
    frame, simple = rows, [check for check in mine if not check.unique]
    conditions = dict(more)
    for check in simple:
        conditions[check.name] = check.failing
        if check.refers is not None:
            column, table = check.refers
            there = f"has_{column}"
            known = whole(table).select(column, f.lit(True).alias(there)).coalesce(1).distinct()
            frame = frame.join(known, column, "left")
            conditions[check.name] = f"{column} IS NOT NULL AND {there} IS NULL"
    sums = [f.expr(f"count_if({failing}) AS `{name}`") for name, failing in conditions.items()]
    sums.append(f.count(f.lit(1)).alias("n"))
    unique = next((check for check in mine if check.unique), None)
    if unique is not None:
        groups, different = _groups(unique, frame, by)
        frame = groups.agg(*sums, different.alias("different"))
        sums = [f.sum(f"`{name}`").alias(name) for name in (*conditions, "n", "different")]
    counted = frame.groupBy(*by).agg(*sums).collect()

    def total(name: str) -> int:
        return sum(row[name] or 0 for row in counted)

    results = []
    for check in mine:
        of = total("n")
        failed = of - total("different") if check.unique else total(check.name)
        if check.refers is not None:
            failed, of = failed and _count_lacking(check.refers, rows, whole), -1
        results.append(CheckResult(check.name, check.table, check.severity, failed, of))
    return results, counted


def _groups(unique: TableCheck, frame: DataFrame, by: Sequence[str]) -> tuple[GroupedData, Column]:
    """Return groups with the number of different rows in each. A numeric last column is counted
    as bits in words with 64 bits, which is exact and needs no shuffle or sort."""
    *others, last = unique.unique
    if dict(frame.dtypes)[last] != "bigint":
        return frame.groupBy(*unique.unique, *by), f.lit(1)
    bit = f.expr(f"shiftleft(1L, cast(`{last}` & 63 as int))")
    word = f.shiftright(last, 6).alias("word")
    return frame.groupBy(*others, *by, word), f.bit_count(f.bit_or(bit))


def _count_lacking(refers: tuple[str, str], rows: DataFrame, whole: Tables) -> int:
    """Return how many values the other table lacks."""
    column, table = refers
    mine = rows.select(column).dropna().distinct()
    return int(mine.join(whole(table).select(column), column, "left_anti").count())
