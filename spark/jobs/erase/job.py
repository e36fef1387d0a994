"""Takes the message contents of an order out of segments, silver and gold.

The segments come first: from then on, tables made of them have no content either. Each step is
without effect if it was done before, so a killed run is run again with the same order.
"""

from pyspark.sql import DataFrame

from spark import source
from spark.errors import OutputBusy, Usage
from spark.jobs.erase import bronze, certificate, lake, order, swap
from spark.jobs.erase import transforms as t
from spark.jobs.erase.order import ErasureOrder
from spark.lease import Lease, hold
from spark.locations import Location
from spark.request import JobReport, JobRequest
from spark.segments import EVENTS


def run(ask: JobRequest) -> JobReport:
    options = ask.options
    if (options.get("order") is None) == (options.get("verify") is None):
        raise Usage("erase needs either --order or --verify")
    folder = ask.source / EVENTS
    ask.size_shuffles(sum(segment.bytes for segment in bronze.every(folder).values()))
    if options.get("verify") is not None:
        with ask.progress.step(ask.spark, "erase: verifying"):
            return JobReport(certificate.verify(ask, options["verify"]), [], options["verify"])
    asked = order.read(options["order"])
    if options.get("dry-run"):
        return _dry_run(ask, asked, folder)
    # In a directory this is the lock of the exporter, which only adds to a bucket.
    with hold(folder, OutputBusy(f"an export or an erasure is writing to {ask.source}")) as lease:
        return _erase(ask, asked, folder, lease)


def _dry_run(ask: JobRequest, asked: ErasureOrder, folder: Location) -> JobReport:
    chosen = _select(ask, asked, folder).persist()
    rows = bronze.with_content(ask, bronze.every(folder), chosen, asked)
    files = [row["count"] for row in rows.groupBy("file_path").count().collect()]
    snapshots = bronze.snapshots_with(ask.spark, ask.source, chosen)
    counts = certificate.count(chosen)
    counts |= {"segments": len(files), "rows": sum(files), "snapshots": len(snapshots)}
    chosen.unpersist()
    ask.progress.say("erase: a dry run, nothing is changed")
    return JobReport(counts, [], None)


def _erase(
    ask: JobRequest, asked: ErasureOrder, folder: Location, lease: Lease | None
) -> JobReport:
    spark, at, work = ask.spark, ask.now.isoformat(), certificate.folder_of(ask, asked)
    former = swap.recover(folder, asked.sha256, at)
    with ask.progress.step(spark, "erase: selecting"):
        chosen = certificate.remember(ask, work, _select(ask, asked, folder)).persist()
    with ask.progress.step(spark, "erase: writing segments"):
        changes = bronze.stage(ask, folder, bronze.every(folder), chosen, asked)
        snapshots = bronze.snapshots_with(spark, ask.source, chosen)
        plan = swap.ErasePlan(asked.sha256, changes, snapshots).after(former)
    with ask.progress.step(spark, "erase: replacing segments"):
        if lease is not None:
            lease.renew()
        swap.begin(folder, plan)
        swap.finish(folder, plan, at)
        bronze.remove_snapshots(ask.source, plan.snapshots)
    with ask.progress.step(spark, "erase: silver and gold"):
        silver = lake.erase_silver(ask, asked, chosen)
        gold = lake.erase_gold(ask, asked)
    counts = certificate.count(chosen)
    counts |= {"segments": len(plan.changes), "rows": sum(each.changed for each in plan.changes),
               "silver_rows": sum(silver.values()), "snapshots": len(plan.snapshots)}  # fmt: skip
    changed = former or plan.changes or plan.snapshots or silver or any(gold.values())
    path = None
    if changed or not certificate.certificates(work):
        with ask.progress.step(spark, "erase: verifying"):
            more = {"silver": silver, "gold": gold}
            path = certificate.write(ask, asked, chosen, plan, more)
    chosen.unpersist()
    swap.end(folder)
    return JobReport(counts, [], path)


def _select(ask: JobRequest, asked: ErasureOrder, folder: Location) -> DataFrame:
    """Return what the order selects in the log and in silver, and what former runs selected."""
    facts = t.facts_in_log(source.read(ask.spark, list(bronze.every(folder).values())))
    in_silver = lake.facts(ask)
    if in_silver is not None:
        facts = facts.unionByName(in_silver, allowMissingColumns=True)
    work = certificate.folder_of(ask, asked)
    return t.select(facts, asked, certificate.read_selected(ask, work))
