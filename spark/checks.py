"""Data quality as rows: what must hold of a table, how bad it is if not, and one pass to count.

    Check("messages.sender", "messages", NOT_NULL, ("sender",), WARN)

An error keeps the new version from being published; a warning is told and counted.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as f

WARN, ERROR = "warn", "error"
NOT_NULL, UNIQUE, RANGE, REFERENCE, FRESH, GAPS = (
    "not null", "unique", "range", "reference", "freshness", "gaps",
)  # fmt: skip
AT_ONCE = 4  # queries


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
    """In the order of `checks`. One query a table for what its rows tell, one for each reference:
    a few at a time, for on few rows a query is mostly planning."""
    queries: list[Callable[[], list[Result]]] = []
    for table in dict.fromkeys(check.table for check in checks):
        mine = [check for check in checks if check.table == table]
        simple = [check for check in mine if check.kind in (NOT_NULL, RANGE, FRESH)]
        unique: list[Check | None] = [check for check in mine if check.kind == UNIQUE]
        first, *others = unique or [None]
        if first or simple:
            queries.append(partial(_rows, first, simple, tables(table), now))
        queries += [partial(_rows, check, (), tables(table), now) for check in others]
        references = [check for check in mine if check.kind == REFERENCE]
        queries += [partial(_reference, check, tables) for check in references]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = [result for some in pool.map(_call, queries) for result in some]
    names = [check.name for check in checks]
    return sorted(found, key=lambda result: names.index(result.name))


def gaps(name: str, table: str, sentences: Sequence[str], severity: str = WARN) -> Result:
    """What is missing between segments, which no row can tell."""
    return Result(name, table, severity, len(sentences), len(sentences), "; ".join(sentences[:5]))


def _call(query: Callable[[], list[Result]]) -> list[Result]:
    return query()


def _rows(
    unique: Check | None, simple: Sequence[Check], frame: DataFrame, now: datetime
) -> list[Result]:
    """What is counted of single rows is counted beside the groups of what must be unique."""
    names = [f"c{place}" for place in range(len(simple))]
    sums = [_expression(check).alias(name) for check, name in zip(simple, names, strict=True)]
    sums.append(f.count(f.lit(1)).alias("n"))
    if unique is not None:
        groups, different = _groups(unique, frame)
        frame = groups.agg(*sums, different.alias("different"))
        sums = [
            (f.max if check.kind == FRESH else f.sum)(name).alias(name)
            for check, name in zip(simple, names, strict=True)
        ] + [f.sum("n").alias("n"), f.sum("different").alias("different")]
    (row,) = frame.agg(*sums).collect()
    rows = row["n"] or 0
    results = [
        _result(check, row[name], rows, now) for check, name in zip(simple, names, strict=True)
    ]
    if unique is not None:
        again = rows - (row["different"] or 0)
        results.append(Result(unique.name, unique.table, unique.severity, again, rows))
    return results


def _groups(unique: Check, frame: DataFrame) -> tuple[GroupedData, Column]:
    """Groups of rows, and how many different ones each holds. Where the last column is a number,
    as bits, a word for 64 of them: exact, and no row is moved or sorted."""
    *others, last = unique.columns
    if dict(frame.dtypes)[last] != "bigint":
        return frame.groupBy(*unique.columns), f.lit(1)
    bit = f.expr(f"shiftleft(1L, cast(`{last}` & 63 as int))")
    return frame.groupBy(*others, f.shiftright(last, 6).alias("word")), f.bit_count(f.bit_or(bit))


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


def _reference(check: Check, tables: Tables) -> list[Result]:
    assert check.other is not None
    table, column = check.other
    mine = tables(check.table).select(f.col(check.columns[0]).alias("id")).distinct()
    others = tables(table).select(f.col(column).alias("id"))
    failed = mine.where("id is not null").join(others, "id", "left_anti").count()
    return [Result(check.name, check.table, check.severity, failed, -1)]


def spell(results: Sequence[Result]) -> list[str]:
    """A line for each, the failed ones first."""
    lines = []
    for one in sorted(results, key=lambda each: (each.failed == 0, each.severity != ERROR)):
        verdict = "holds" if one.failed == 0 else f"{one.severity.upper()}: {one.failed:,} fail"
        lines.append(f"check {one.name}: {verdict}{f' ({one.said})' if one.said else ''}")
    return lines
