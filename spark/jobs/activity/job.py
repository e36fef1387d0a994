"""Reads silver, counts the stale or requested days, and publishes gold with all other days kept.

Names of channels and titles of topics are tables of their own, so a rename changes no day.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark import checks
from spark.errors import EmptyRange, SegmentMissing
from spark.jobs.activity import plan, schema
from spark.jobs.activity import transforms as t
from spark.jobs.activity.plan import Range
from spark.request import JobReport, JobRequest
from spark.results import ERROR, WARN, CheckResult
from spark.tables import ALL, Draft, Version

CHECKS = (
    checks.TableCheck(
        "activity.once", "activity", checks.UNIQUE, ("day", "channel_id", "topic_id", "sender"),
        ERROR,
    ),
    checks.TableCheck(
        "activity.messages", "activity", checks.RANGE, ("messages",), ERROR, low=0
    ),
    checks.TableCheck(
        "activity.reply", "activity", checks.RANGE, ("first_reply_median_seconds",), ERROR,
        low=0, high=schema.REPLY_SECONDS_MAX,
    ),
    checks.TableCheck("activity.sender", "activity", checks.NOT_NULL, ("sender",), WARN),
    checks.TableCheck(
        "activity.topic", "activity", checks.REFERENCE, ("topic_id",), WARN,
        other=("topics", "topic_id"),
    ),
)  # fmt: skip


SUMS = ("messages", "edits", "deletes", "moves")


def run(ask: JobRequest) -> JobReport:
    source = plan.silver(ask)
    if source is None:
        raise SegmentMissing(f"{ask.source} contains no silver tables: run ingest first")
    dataset, former = plan.gold(ask), plan.published(ask)
    draft = dataset.draft()
    requested = plan.requested(ask)
    ranges = requested or plan.due(source, former)
    recounted = _days_to_recount(former, ranges)
    if ranges:
        _count(ask, source, draft, ranges, recounted)
    if requested and not recounted and not _days(draft):
        raise EmptyRange(f"no activity in {ask.first_day or '…'} to {ask.last_day or '…'}")
    _write_names(ask, source, draft)
    checked = _check(ask, draft)
    counts = _sums(draft.written(ask.spark, "activity"))
    memory = _memory(source, former, draft, ranges)
    made = ask.commit(dataset, draft, memory)
    return JobReport(counts, [*checked, _stale(source, memory)], made.root)


def _days_to_recount(former: Version | None, ranges: Sequence[Range]) -> set[str]:
    """Days that were counted before. They are removed if a restore discarded their events."""
    if former is None:
        return set()
    days = {day for table in schema.DAILY for day in former.parts(table)}
    return {day for day in days if plan.contains(ranges, day)}


def _count(
    ask: JobRequest, source: Version, draft: Draft, ranges: Sequence[Range], recounted: set[str]
) -> None:
    """Write the days of `ranges`, in place of those `recounted`."""
    spark = ask.spark
    days = [file for file in source.files("messages") if plan.contains(ranges, file.part)]
    ask.size_shuffles(sum(file.bytes for file in days))
    rows = t.near(source.read(spark, "messages"), ranges).persist()
    messages = t.within(t.sequence(rows), ranges).persist()
    with ask.progress.step(spark, "activity: spans and pairs"):
        draft.write(t.spans(messages).repartition("day"), "spans", recounted)
        draft.write(t.pairs(messages).repartition("day"), "pairs", recounted)
    with ask.progress.step(spark, "activity: days"):
        spent = draft.written(spark, "spans")
        totals = t.activity(t.within(rows, ranges), messages, spent)
        draft.write(totals.repartition("day"), "activity", recounted)
    messages.unpersist()
    rows.unpersist()


def _write_names(ask: JobRequest, source: Version, draft: Draft) -> None:
    with ask.progress.step(ask.spark, "activity: names"):
        for table in plan.NAMES:
            rows = t.newest(source.read(ask.spark, table), schema.OUTPUT[table].names)
            draft.write(rows.coalesce(1), table, ALL)


def _check(ask: JobRequest, draft: Draft) -> list[CheckResult]:
    """The results for the new files. Raises ChecksFailed for a failed check of severity error."""
    with ask.progress.step(ask.spark, "activity: checks"):
        checked = checks.run(CHECKS, partial(draft.written, ask.spark))
    checks.require_passed(checked, ask.progress)
    return checked


def _sums(counted: DataFrame) -> dict[str, int]:
    sums = [f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in SUMS]
    (row,) = counted.agg(f.count(f.lit(1)).alias("rows"), *sums).collect()
    return dict(row.asDict())


def _memory(
    source: Version, former: Version | None, draft: Draft, ranges: Sequence[Range]
) -> dict[str, Any]:
    """What plan.py reads. `whole`: whether all days were counted once, also those that silver does
    not list as touched."""
    if former is not None and plan.is_remade(source, former):
        former = None
    counted = dict(former.memory["counted"]) if former else {}
    counted = {day: version for day, version in counted.items() if not plan.contains(ranges, day)}
    changes = plan.newest_changes(source.memory, _days(draft))
    counted |= {day: version for day, version in changes.items() if plan.contains(ranges, day)}
    return {
        "silver": source.number,
        "counted": dict(sorted(counted.items())),
        "whole": ranges == plan.ALL or (former is not None and former.memory["whole"]),
        "names": plan.names(source),
    }


def _days(draft: Draft) -> set[str]:
    """The days that this run wrote."""
    return {file.part for table in schema.DAILY for file in draft.written_files(table)}


def _stale(source: Version, memory: dict[str, Any]) -> CheckResult:
    days = plan.stale_days(source.memory, memory["counted"])
    note = f"{len(days):,} days are stale: run activity without dates" if days else ""
    return CheckResult("activity.stale", "activity", WARN, len(days), len(memory["counted"]), note)
