"""Silver and gold of a lake: rewritten where they have content of the selection."""

import shutil
from functools import partial, reduce
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark.errors import ChecksFailed
from spark.files import writable
from spark.jobs.activity import job, plan
from spark.jobs.erase import payload, schema
from spark.jobs.erase import transforms as t
from spark.jobs.erase.order import ErasureOrder
from spark.jobs.ingest.job import silver
from spark.request import JobRequest
from spark.tables import ALL, Dataset, Draft, Version

EVENT_TABLES = ("unknown_events", "quarantine")  # with events as they were received


class SilverErasure(NamedTuple):
    """version: number of the run; rows: changed rows by table; digests: those of all other rows"""

    version: int
    rows: dict[str, int]
    digests: dict[str, dict[str, Any]]


def select(ask: JobRequest, order: ErasureOrder) -> DataFrame | None:
    """What the order selects in silver, which may be older than all segments."""
    version = silver(ask.out).current()
    if version is None:
        return None
    history = version.read(ask.spark, "messages")
    messages = t.selected_messages(t.messages_in_silver(history), order)
    rows = t.attachments_in_silver(version.read(ask.spark, "attachments"))
    return messages.unionByName(t.selected_attachments(rows, messages, order))


def erase_silver(ask: JobRequest, order: ErasureOrder, chosen: DataFrame) -> SilverErasure | None:
    """Publish a version without the content and remove all former ones."""
    dataset = silver(ask.out)
    former = dataset.current()
    if former is None:
        return None
    counts = content(ask, former, order, chosen)
    made = former
    digests: dict[str, dict[str, Any]] = {}
    if counts:
        made, digests = _publish(ask, order, chosen, dataset, former, set(counts))
    dataset.vacuum(0)
    return SilverErasure(made.number, counts, digests)


def content(
    ask: JobRequest, version: Version, order: ErasureOrder, chosen: DataFrame
) -> dict[str, int]:
    """How many rows of each table have content of the selection."""
    frames = []
    for table in filter(version.has, schema.IDS):
        rows = _flag(ask, version, table, chosen)
        frames.append(rows.where(_differs(table, rows, order)).select(f.lit(table).alias("table")))
    if not frames:
        return {}
    rows = reduce(DataFrame.unionByName, frames).groupBy("table").count()
    return {row["table"]: row["count"] for row in rows.collect()}


def _publish(
    ask: JobRequest, order: ErasureOrder, chosen: DataFrame, dataset: Dataset, former: Version,
    tables: set[str],
) -> tuple[Version, dict[str, dict[str, Any]]]:  # fmt: skip
    """Write these tables without content; all other rows must be the same in the files."""
    draft = dataset.draft()
    rewritten, touched = _days(ask, order, chosen, former)
    before, after = [], []
    for table in sorted(tables):
        rows = _in_days(table, _flag(ask, former, table, chosen), rewritten)
        _write(draft, table, rows, order, rewritten)
        written = t.is_selected(table, draft.read(ask.spark, table), chosen)
        before.append(_hash(table, rows, order))
        after.append(_hash(table, _in_days(table, written, rewritten), order))
    digests, others = _digests(before), _digests(after)
    if digests != others:
        raise ChecksFailed("other rows of silver would change; nothing was published")
    memory = dict(former.memory)
    if "touched" in memory:
        memory["touched"] = memory["touched"] | dict.fromkeys(sorted(touched), draft.number)
    return ask.commit(dataset, draft, memory), digests


def _days(
    ask: JobRequest, order: ErasureOrder, chosen: DataFrame, version: Version
) -> tuple[set[str], set[str]]:
    """The days of `messages` to write again, and the days when anything selected happened."""
    rows = _flag(ask, version, "messages", chosen).where("affected")
    days = rows.select("day", f.to_date("valid_from").alias("at"),
                       _differs("messages", rows, order).alias("differs"))  # fmt: skip
    every = days.distinct().collect()
    return {str(row["day"]) for row in every if row["differs"]}, {str(row["at"]) for row in every}


def _in_days(table: str, rows: DataFrame, days: set[str]) -> DataFrame:
    if table != "messages":
        return rows
    return rows.where(f.col("day").cast("string").isin(sorted(days)))


def _write(draft: Draft, table: str, rows: DataFrame, order: ErasureOrder, days: set[str]) -> None:
    names = [name for name in rows.columns if name != "affected"]
    made = rows.select(*_erase_row(table, names, order))
    if table == "messages":
        made = made.repartition("day").sortWithinPartitions("event_id")
        draft.write(made, table, days)
    else:
        draft.write(made.coalesce(1), table, ALL)


def _hash(table: str, rows: DataFrame, order: ErasureOrder) -> DataFrame:
    names = t.columns_with_content(table, rows.columns, order)
    return t.hash_rows(rows.withColumn("table", f.lit(table)), "table", names)


def _digests(frames: list[DataFrame]) -> dict[str, dict[str, Any]]:
    rows = t.digests(reduce(DataFrame.unionByName, frames), "table").collect()
    return {row["table"]: {name: row[name] for name in ("rows", "untouched", "envelopes")}
            for row in rows}  # fmt: skip


def _flag(ask: JobRequest, version: Version, table: str, chosen: DataFrame) -> DataFrame:
    return t.is_selected(table, version.read(ask.spark, table), chosen)


def _erase_row(table: str, names: list[str], order: ErasureOrder) -> list[Column]:
    if table not in EVENT_TABLES:
        return t.erase_row(table, names, order)
    erase = partial(payload.erase, senders=order.senders, becomes=order.sender_becomes)
    made = f.udf(erase, "string", useArrow=False)("name", "data_json")
    data = f.when(f.col("affected"), made).otherwise(f.col("data_json")).alias("data_json")
    return [data if name == "data_json" else f.col(name) for name in names]


def _differs(table: str, rows: DataFrame, order: ErasureOrder) -> Column:
    """Whether erasing changes the row. Maps are compared as entries."""
    names = t.columns_with_content(table, rows.columns, order)
    made = dict(zip(names, _erase_row(table, names, order), strict=True))
    same = [
        f.map_entries(made[name]).eqNullSafe(f.map_entries(name)) if name == "extra"
        else made[name].eqNullSafe(f.col(name))
        for name in names
    ]  # fmt: skip
    return f.col("affected") & ~reduce(Column.__and__, same)


# -- gold --------------------------------------------------------------------------------


def erase_gold(ask: JobRequest, order: ErasureOrder) -> dict[str, list[str]]:
    """Count the days of renamed senders again, and remove what is made of contents."""
    gold = ask.out / "gold"
    removed = [name for name in schema.DERIVED if (gold / name).is_dir()]
    with writable(gold):
        for name in removed:
            shutil.rmtree(gold / name)
    rebuilt: list[str] = []
    has_activity = (gold / "activity/runs").exists() and (ask.out / "silver/runs").exists()
    if order.sender_becomes and has_activity:
        again = ask._replace(source=ask.out, first_day=None, last_day=None, options={})
        if not plan.up_to_date(again):
            job.run(again)
            rebuilt = ["activity"]
        plan.gold(ask).vacuum(0)
    return {"rebuilt": rebuilt, "removed": removed}


def unreached(ask: JobRequest) -> list[str]:
    """Entries below the output that this job doesn't know."""
    known = {"silver", "gold", "checkpoints", "erasures", "runs"}
    gold = {"activity", *schema.DERIVED, *schema.CONTENTLESS}
    entries = [path for path in sorted(ask.out.glob("[!.]*")) if path.name not in known]
    entries += [path for path in sorted(ask.out.glob("gold/[!.]*")) if path.name not in gold]
    mine = ask.source.resolve()
    return [str(path.relative_to(ask.out)) for path in entries
            if path.resolve() != mine and path.resolve() not in mine.parents]  # fmt: skip
