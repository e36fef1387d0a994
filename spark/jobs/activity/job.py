"""Reads silver, counts the stale or requested days, and publishes gold with all other days kept.

Channel names and topic titles have separate tables, so a rename changes no day.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark import checks
from spark.checks import TableCheck
from spark.errors import EmptyRange, SegmentMissing
from spark.jobs.activity import plan, schema
from spark.jobs.activity import transforms as t
from spark.request import JobReport, JobRequest
from spark.results import ERROR, WARN, CheckResult
from spark.tables import DataFile, Draft, Version

CHECKS = (
    TableCheck("activity.once", "activity", ERROR, unique=t.WHERE),
    TableCheck("activity.messages", "activity", ERROR, "messages < 0"),
    TableCheck(
        "activity.reply", "activity", ERROR,
        f"first_reply_median_seconds NOT BETWEEN 0 AND {schema.REPLY_SECONDS_MAX}",
    ),
    TableCheck("activity.sender", "activity", WARN, "sender IS NULL"),
    TableCheck("activity.topic", "activity", WARN, refers=("topic_id", "topics")),
)  # fmt: skip


SUMS = ("messages", "edits", "deletes", "moves")


def run(request: JobRequest) -> JobReport:
    source = plan.silver(request)
    if source is None:
        raise SegmentMissing(f"{request.source} contains no silver tables: run ingest first")
    dataset = plan.gold(request)
    former, draft = dataset.current(), dataset.draft()
    days = plan.days_to_count(request, source, former)
    if days:
        _count(request, source, draft, days)
    had = _days(former.files) if former else set()
    # Days that were counted before are removed if a restore discarded their events.
    if request.names_days and not days & had and not _days(draft.written_files):
        raise EmptyRange(f"no activity in {request.first_day or '…'} to {request.last_day or '…'}")
    _write_names(request, source, draft)
    checked = _check(request, draft)
    counts = _sums(draft.written(request.spark, "activity"))
    changes = plan.newest_changes(source.checkpoint, days)
    counted = plan.list_counted(source, former) | {day: changes[day] for day in days}
    checkpoint = {
        "silver": source.number,
        "counted": dict(sorted(counted.items())),
        "names": plan.names(source),
    }
    made = request.commit(dataset, draft, checkpoint)
    return JobReport(counts, [*checked, _stale(source, checkpoint)], made.root)


def _count(request: JobRequest, source: Version, draft: Draft, days: set[str]) -> None:
    """Write the given days and replace what was counted before."""
    spark = request.spark
    files = [file for file in source.files("messages") if file.part in days]
    request.size_shuffles(sum(file.bytes for file in files))
    rows = t.near(source.read(spark, "messages"), days).persist()
    messages = t.within(t.sequence(rows), days).persist()
    with request.progress.step(spark, "activity: spans and pairs"):
        draft.replace(t.spans(messages).repartition("day"), "spans", days)
        draft.replace(t.pairs(messages).repartition("day"), "pairs", days)
    with request.progress.step(spark, "activity: days"):
        spent = draft.written(spark, "spans")
        totals = t.activity(t.within(rows, days), messages, spent)
        draft.replace(totals.repartition("day"), "activity", days)
    messages.unpersist()
    rows.unpersist()


def _write_names(request: JobRequest, source: Version, draft: Draft) -> None:
    with request.progress.step(request.spark, "activity: names"):
        for table in plan.NAMES:
            rows = t.newest(source.read(request.spark, table), schema.OUTPUT[table].names)
            draft.overwrite(rows.coalesce(1), table)


def _check(request: JobRequest, draft: Draft) -> list[CheckResult]:
    """Return the results for the new files; raise ChecksFailed if a check with severity error
    fails."""
    with request.progress.step(request.spark, "activity: checks"):
        checked = checks.run(CHECKS, partial(draft.written, request.spark))
    checks.require_passed(checked, request.progress)
    return checked


def _sums(counted: DataFrame) -> dict[str, int]:
    sums = [f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in SUMS]
    (row,) = counted.agg(f.count(f.lit(1)).alias("rows"), *sums).collect()
    return dict(row.asDict())


def _days(files: Callable[[str], list[DataFile]]) -> set[str]:
    """Return the days that the daily tables' files contain."""
    return {file.part for table in schema.DAILY for file in files(table)}


def _stale(source: Version, checkpoint: dict[str, Any]) -> CheckResult:
    days = plan.stale_days(source.checkpoint, checkpoint["counted"])
    note = f"{len(days):,} days are stale: run activity without dates" if days else ""
    return CheckResult(
        "activity.stale", "activity", WARN, len(days), len(checkpoint["counted"]), note
    )
