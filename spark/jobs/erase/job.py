"""Takes the message contents of an order out of segments, silver and gold.

The segments come first: from then on, tables made of them have no content either. Each step is
without effect if it was done before, so a killed run is run again with the same order.
"""

from pathlib import Path

from pyspark.sql import DataFrame

from spark.errors import OutputBusy, Usage
from spark.jobs.erase import bronze, certificate, lake, order, schema, swap
from spark.jobs.erase.certificate import Work
from spark.jobs.erase.order import ErasureOrder
from spark.request import JobReport, JobRequest


def run(ask: JobRequest) -> JobReport:
    options = ask.options
    if (options.get("order") is None) == (options.get("verify") is None):
        raise Usage("erase needs either --order or --verify")
    folder = ask.source / "events"
    ask.size_shuffles(sum(segment.bytes for segment in bronze.every(folder).values()))
    if options.get("verify") is not None:
        path = Path(options["verify"])
        with ask.progress.step(ask.spark, "erase: verifying"):
            return JobReport(dict(certificate.verify(ask, path)), [], path)
    asked = order.read(Path(options["order"]))
    if options.get("dry-run"):
        return _dry_run(ask, asked, folder)
    with swap.only_writer(folder):
        return _erase(ask, asked, folder)


def _dry_run(ask: JobRequest, asked: ErasureOrder, folder: Path) -> JobReport:
    chosen = _select(ask, asked, folder).persist()
    counts = _counts(chosen)
    people = (asked.senders, asked.sender_becomes)
    dirty = bronze.left(ask.spark, list(bronze.every(folder).values()), chosen, *people)
    counts |= {"segments": len(dirty), "rows": sum(dirty.values())}
    counts["snapshots"] = len(bronze.snapshots_with(ask.spark, ask.source, chosen))
    chosen.unpersist()
    ask.progress.say("erase: a dry run, nothing is changed")
    return JobReport(counts, [], None)


def _erase(ask: JobRequest, asked: ErasureOrder, folder: Path) -> JobReport:
    spark, work, at = ask.spark, Work(ask, asked), ask.now.isoformat()
    former = swap.pending(folder)
    if former is not None and former.order != asked.sha256:
        raise OutputBusy(
            f"another erasure of {folder.parent} did not finish",
            f"run it again with its order, which has the SHA-256 {former.order}",
        )
    if former is not None:
        swap.finish(folder, former, at)
    else:
        swap.sweep(folder)
    with ask.progress.step(spark, "erase: selecting"):
        chosen = work.remember(ask, _select(ask, asked, folder)).persist()
    plan = _stage(ask, asked, folder, chosen, former)
    with ask.progress.step(spark, "erase: replacing segments"):
        swap.begin(folder, plan)
        swap.finish(folder, plan, at)
        bronze.remove_snapshots(ask.source, plan.snapshots)
    with ask.progress.step(spark, "erase: silver and gold"):
        silver = lake.erase_silver(ask, asked, chosen)
        gold = lake.erase_gold(ask, asked)
    with ask.progress.step(spark, "erase: verifying"):
        fields = certificate.compose(ask, asked, work, chosen, plan, silver, gold)
    counts = _counts(chosen)
    chosen.unpersist()
    rows = sum(change.changed for change in plan.changes)
    in_silver = sum(silver.rows.values()) if silver is not None else 0
    counts |= {"segments": len(plan.changes), "rows": rows, "silver_rows": in_silver,
               "snapshots": len(plan.snapshots)}  # fmt: skip
    nothing = not (rows or in_silver or plan.snapshots or gold["rebuilt"] or gold["removed"])
    path = None if nothing and work.certificates() else work.write(fields)
    swap.end(folder)
    return JobReport(counts, [], path)


def _select(ask: JobRequest, asked: ErasureOrder, folder: Path) -> DataFrame:
    events = bronze.read(ask.spark, list(bronze.every(folder).values()))
    chosen = bronze.select(events, asked)
    in_silver = lake.select(ask, asked)
    return chosen if in_silver is None else chosen.unionByName(in_silver).distinct()


def _stage(
    ask: JobRequest, asked: ErasureOrder, folder: Path, chosen: DataFrame,
    former: swap.ErasePlan | None,
) -> swap.ErasePlan:  # fmt: skip
    """The plan: what the run before had planned, and all segments with content that is left."""
    spark, held = ask.spark, bronze.every(folder)
    people = (asked.senders, asked.sender_becomes)
    with ask.progress.step(spark, "erase: writing segments"):
        dirty = bronze.left(spark, list(held.values()), chosen, *people)
        some = [held[name] for name in sorted(dirty)]
        changes = bronze.stage(spark, folder, some, chosen, asked) if some else []
        snapshots = bronze.snapshots_with(spark, ask.source, chosen)
    if former is not None:
        again = {change.file for change in changes}
        changes = [change for change in former.changes if change.file not in again] + changes
        snapshots = sorted({*former.snapshots, *snapshots})
    return swap.ErasePlan(asked.sha256, tuple(changes), tuple(snapshots))


def _counts(chosen: DataFrame) -> dict[str, int]:
    counts = {row["kind"]: row["count"] for row in chosen.groupBy("kind").count().collect()}
    return {"messages": counts.get(schema.MESSAGE, 0),
            "attachments": counts.get(schema.ATTACHMENT, 0)}  # fmt: skip
