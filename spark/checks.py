"""Data quality as rows: what must hold of a table, how bad it is if not, and one pass to count.

    Check("messages.sender", "messages", NOT_NULL, ("sender",), WARN)

An error keeps the new version from being published; a warning is told and counted.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

WARN, ERROR = "warn", "error"
NOT_NULL, UNIQUE, RANGE, REFERENCE, FRESH, GAPS = (
    "not null", "unique", "range", "reference", "freshness", "gaps",
)  # fmt: skip


class Check(NamedTuple):
    """`low`/`high` bound a range; `other` is (table, column) that a reference must be in;
    `seconds` is how old the newest value may be at the run."""

    name: str
    table: str
    kind: str
    columns: tuple[str, ...]
    severity: str
    low: Any = None
    high: Any = None
    other: tuple[str, str] | None = None
    seconds: float | None = None


class Result(NamedTuple):
    name: str
    table: str
    severity: str
    failed: int
    rows: int
    said: str = ""

    @property
    def is_error(self) -> bool:
        return self.failed > 0 and self.severity == ERROR


Tables = Callable[[str], DataFrame]


def run(checks: Sequence[Check], tables: Tables, now: datetime) -> list[Result]:
    """One aggregate a table for what a row tells by itself; one query for each of the others."""
    results = []
    for table in dict.fromkeys(check.table for check in checks):
        mine = [check for check in checks if check.table == table]
        simple = [check for check in mine if check.kind in (NOT_NULL, RANGE, FRESH)]
        if simple:
            results += _aggregated(simple, tables(table), now)
        for check in mine:
            if check.kind == REFERENCE:
                results.append(_reference(check, tables))
            if check.kind == UNIQUE:
                results.append(_unique(check, tables(table)))
    return results


def gaps(name: str, table: str, sentences: Sequence[str], severity: str = WARN) -> Result:
    """What is missing between segments, which no row can tell."""
    return Result(name, table, severity, len(sentences), len(sentences), "; ".join(sentences[:5]))


def _aggregated(checks: Sequence[Check], frame: DataFrame, now: datetime) -> list[Result]:
    sums = [_expression(check).alias(f"c{place}") for place, check in enumerate(checks)]
    (row,) = frame.agg(f.count(f.lit(1)).alias("rows"), *sums).collect()
    return [
        _result(check, row[f"c{place}"], row["rows"], now) for place, check in enumerate(checks)
    ]


def _expression(check: Check) -> Column:
    column = f.col(check.columns[0])
    if check.kind == NOT_NULL:
        return f.count_if(column.isNull())
    if check.kind == RANGE:
        beyond = f.lit(False)
        if check.low is not None:
            beyond = beyond | (column < check.low)
        if check.high is not None:
            beyond = beyond | (column > check.high)
        return f.count_if(beyond)
    return f.unix_micros(f.max(column))


def _result(check: Check, value: Any, rows: int, now: datetime) -> Result:
    if check.kind != FRESH:
        return Result(check.name, check.table, check.severity, int(value or 0), rows)
    if value is None:
        return Result(check.name, check.table, check.severity, 0, rows, "nothing there yet")
    age = now.astimezone(UTC).timestamp() - value / 1e6
    old = check.seconds is not None and age > check.seconds
    said = f"the newest is {age:.0f} s old"
    return Result(check.name, check.table, check.severity, int(old), rows, said)


def _unique(check: Check, frame: DataFrame) -> Result:
    """Where the last column is a number, as bits, a word for 64 of them: exact, and no row is moved
    or sorted."""
    *others, last = check.columns
    if dict(frame.dtypes)[last] == "bigint":
        bit = f.expr(f"shiftleft(1L, cast(`{last}` & 63 as int))")
        groups = frame.groupBy(*others, f.shiftright(last, 6).alias("word"))
        sums = groups.agg(f.count(f.lit(1)).alias("n"), f.bit_count(f.bit_or(bit)).alias("d"))
        (row,) = sums.agg(f.sum("n").alias("rows"), f.sum("d").alias("different")).collect()
        rows, different = row["rows"] or 0, row["different"] or 0
    else:
        rows, different = frame.count(), frame.select(*check.columns).distinct().count()
    return Result(check.name, check.table, check.severity, rows - different, rows)


def _reference(check: Check, tables: Tables) -> Result:
    assert check.other is not None
    table, column = check.other
    mine = tables(check.table).select(f.col(check.columns[0]).alias("id")).distinct()
    others = tables(table).select(f.col(column).alias("id"))
    failed = mine.where("id is not null").join(others, "id", "left_anti").count()
    return Result(check.name, check.table, check.severity, failed, -1)


def spell(results: Sequence[Result]) -> list[str]:
    """A line for each, the failed ones first."""
    lines = []
    for one in sorted(results, key=lambda each: (each.failed == 0, each.severity != ERROR)):
        verdict = "holds" if one.failed == 0 else f"{one.severity.upper()}: {one.failed:,} fail"
        lines.append(f"check {one.name}: {verdict}{f' ({one.said})' if one.said else ''}")
    return lines
