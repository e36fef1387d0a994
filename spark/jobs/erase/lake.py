"""Erases selected content in a lake's silver and gold tables, also in former versions."""

from collections import Counter
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark.files import remove_folder, writable
from spark.jobs.activity import job, plan
from spark.jobs.erase import schema
from spark.jobs.erase import transforms as t
from spark.jobs.erase.order import ErasureOrder
from spark.jobs.ingest.job import silver
from spark.request import JobRequest


def facts(request: JobRequest) -> DataFrame | None:
    """Return what silver has about messages and attachments. Silver may be older than all
    segments."""
    version = silver(request.out).current()
    if version is None:
        return None
    messages, attachments = (
        version.read(request.spark, name) for name in ("messages", "attachments")
    )
    return t.facts_in_silver(messages, attachments)


def contents(request: JobRequest, order: ErasureOrder, chosen: DataFrame) -> list[Any]:
    """Return the number of rows with content, by table, table day and message day."""
    version = silver(request.out).current()
    if version is None:
        return []
    frames = []
    for table, column in schema.IDS.items():
        rows = t.of(version.read(request.spark, table), chosen, column)
        at = f.to_date("valid_from") if table == "messages" else f.lit(None).cast("date")
        days = f.col("day").cast("string").alias("day"), at.cast("string").alias("at")
        frames.append(t.with_content(table, rows, order).select(f.lit(table).alias("table"), *days))
    rows = reduce(DataFrame.unionByName, frames)
    return list(rows.groupBy("table", "day", "at").count().collect())


def by_table(counted: list[Any]) -> dict[str, int]:
    rows = Counter[str]()
    for table, _day, _at, count in counted:
        rows[table] += count
    return dict(sorted(rows.items()))


def erase_silver(request: JobRequest, order: ErasureOrder, chosen: DataFrame) -> dict[str, int]:
    """Publish a version without the content and remove all former ones. Returns the number of
    changed rows by table."""
    dataset, counted = silver(request.out), contents(request, order, chosen)
    former = dataset.current()
    if former is not None and counted:
        draft = dataset.draft()
        for table in by_table(counted):
            days = {row["day"] for row in counted if row["table"] == table}
            rows, column = former.read(request.spark, table, days), schema.IDS[table]
            mine = t.of(rows, chosen, column)
            draft.merge(t.erase(table, mine, order), table, days, mine)
        checkpoint = dict(former.checkpoint)
        touched = {row["at"] for row in counted if row["at"]}
        checkpoint["changed_days"] = checkpoint["changed_days"] | dict.fromkeys(
            sorted(touched), draft.number
        )
        request.commit(dataset, draft, checkpoint)
    request.require_lease()
    dataset.vacuum(0)
    return by_table(counted)


def erase_gold(request: JobRequest, order: ErasureOrder) -> dict[str, list[str]]:
    """Count renamed senders' days again, and remove tables made from contents."""
    gold = request.out / "gold"
    removed = [name for name in schema.DERIVED if (gold / name).is_dir()]
    for name in removed:
        with writable(gold):
            remove_folder(gold / name)
    rebuilt: list[str] = []
    has_activity = (gold / "activity/runs").exists() and (request.out / "silver/runs").exists()
    if order.sender_becomes and has_activity:
        again = request._replace(source=request.out, first_day=None, last_day=None, options={})
        if not plan.up_to_date(again):
            job.run(again)
            rebuilt = ["activity"]
        plan.gold(request).vacuum(0)
    return {"rebuilt": rebuilt, "removed": removed}
