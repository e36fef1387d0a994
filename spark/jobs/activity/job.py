"""Reads silver, computes the requested days, and publishes gold with all other days kept."""

from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark import checks
from spark.dataset import Dataset, Version
from spark.errors import ChecksFailed, EmptyRange, SegmentMissing
from spark.jobs.activity import schema
from spark.jobs.activity import transforms as t
from spark.jobs.ingest.job import silver
from spark.request import JobReport, JobRequest

CHECKS = (
    checks.TableCheck(
        "activity.once", "activity", checks.UNIQUE, ("day", "channel_id", "topic_id", "sender"),
        checks.ERROR,
    ),
    checks.TableCheck(
        "activity.messages", "activity", checks.RANGE, ("messages",), checks.ERROR, low=0
    ),
    checks.TableCheck(
        "activity.reply", "activity", checks.RANGE, ("first_reply_median_seconds",), checks.ERROR,
        low=0, high=schema.REPLY_SECONDS_MAX,
    ),
    checks.TableCheck("activity.sender", "activity", checks.NOT_NULL, ("sender",), checks.WARN),
    checks.TableCheck("activity.topic", "activity", checks.NOT_NULL, ("topic",), checks.WARN),
)  # fmt: skip


def gold(ask: JobRequest) -> Dataset:
    return Dataset(ask.out / "gold" / "activity", schema.NAME)


def run(ask: JobRequest) -> JobReport:
    assert ask.first_day is not None
    assert ask.last_day is not None
    source = silver(ask.source).current()
    if source is None:
        raise SegmentMissing(f"{ask.source} contains no silver tables: run ingest first")
    with gold(ask).writing() as dataset:
        return _publish(ask, source, dataset)


def _publish(ask: JobRequest, source: Version, dataset: Dataset) -> JobReport:
    spark, first, last = ask.spark, ask.first_day, ask.last_day
    assert first is not None
    assert last is not None
    draft, former = dataset.draft(), dataset.current()
    rows = t.near(source.read(spark, "messages"), first, last).persist()
    days = f"{first} to {last}"
    with ask.progress.step(spark, "activity: reading"):
        mine = t.within(rows, first, last)
        recounted = _days_to_recount(former, str(first), str(last))
        if mine.isEmpty() and not recounted:
            raise EmptyRange(f"no activity in {days}")
    messages = t.within(t.sequence(rows), first, last).persist()
    with ask.progress.step(spark, "activity: spans and pairs"):
        draft.write(_file_per_day(t.spans(messages)), "spans")
        draft.write(_file_per_day(t.pairs(messages)), "pairs")
    with ask.progress.step(spark, "activity: days"):
        spent = draft.read(spark, "spans")
        topics, channels = source.read(spark, "topics"), source.read(spark, "channels")
        totals = t.activity(mine, messages, spent, topics, channels)
        draft.write(_file_per_day(totals), "activity")
    messages.unpersist()
    rows.unpersist()
    with ask.progress.step(spark, "activity: checks"):
        results = checks.run(CHECKS, partial(draft.read, spark), ask.now)
    if any(result.is_error for result in results):
        for line in checks.describe(results):
            ask.progress.say(line)
        raise ChecksFailed("the new tables failed a check with severity error")
    (sums,) = draft.read(spark, "activity").agg(
        f.count(f.lit(1)).alias("rows"),
        *[
            f.coalesce(f.sum(name), f.lit(0)).alias(name)
            for name in ("messages", "edits", "deletes", "moves")
        ],
    ).collect()  # fmt: skip
    if former is not None:
        for table in schema.OUTPUT:
            draft.keep(former, table, recounted)
    made = dataset.commit(draft, {"silver": source.path.name})
    return JobReport(sums.asDict(), results, made.path)


def _days_to_recount(former: Version | None, first: str, last: str) -> set[str]:
    """Requested days that were counted before. They are removed if a restore discarded their
    events."""
    if former is None:
        return set()
    counted = {day for table in schema.OUTPUT for day in former.days(table)}
    return {day for day in counted if first <= day <= last}


def _file_per_day(frame: DataFrame) -> DataFrame:
    return frame.repartition("day")
