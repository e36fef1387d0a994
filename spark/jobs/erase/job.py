"""Erases an order's message contents in segments, silver and gold.

Segments come first: from then on, tables made from segments have no content either. A step that was
done before has no effect, so run a killed job again with the same order.
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


def run(request: JobRequest) -> JobReport:
    options = request.options
    if (options.get("order") is None) == (options.get("verify") is None):
        raise Usage("erase needs either --order or --verify")
    folder = request.source / EVENTS
    request.size_shuffles(sum(segment.bytes for segment in bronze.every(folder).values()))
    if options.get("verify") is not None:
        with request.progress.step(request.spark, "erase: verifying"):
            return JobReport(certificate.verify(request, options["verify"]), [], options["verify"])
    asked = order.read(options["order"])
    if options.get("dry-run"):
        return _dry_run(request, asked, folder)
    # In a directory this is the lock of the exporter, which only adds to a bucket.
    with hold(
        folder, OutputBusy(f"an export or an erasure is writing to {request.source}")
    ) as lease:
        return _erase(request, asked, folder, lease)


def _dry_run(request: JobRequest, asked: ErasureOrder, folder: Location) -> JobReport:
    chosen = _select(request, asked, folder).persist()
    rows = bronze.with_content(request, bronze.every(folder), chosen, asked)
    files = [row["count"] for row in rows.groupBy("file_path").count().collect()]
    snapshots = bronze.snapshots_with(request.spark, request.source, chosen)
    counts = certificate.count(chosen)
    counts |= {"segments": len(files), "rows": sum(files), "snapshots": len(snapshots)}
    chosen.unpersist()
    request.progress.say("erase: a dry run, nothing is changed")
    return JobReport(counts, [], None)


def _erase(
    request: JobRequest, asked: ErasureOrder, folder: Location, lease: Lease | None
) -> JobReport:
    spark, at, work = request.spark, request.now.isoformat(), certificate.folder_of(request, asked)
    former = swap.recover(folder, asked.sha256, at)
    with request.progress.step(spark, "erase: selecting"):
        chosen = certificate.remember(request, work, _select(request, asked, folder)).persist()
    with request.progress.step(spark, "erase: writing segments"):
        changes = bronze.stage(request, folder, bronze.every(folder), chosen, asked)
        snapshots = bronze.snapshots_with(spark, request.source, chosen)
        plan = swap.ErasePlan(asked.sha256, changes, snapshots).after(former)
    with request.progress.step(spark, "erase: replacing segments"):
        if lease is not None:
            lease.renew()
        swap.begin(folder, plan)
        swap.finish(folder, plan, at)
        bronze.remove_snapshots(request.source, plan.snapshots)
    with request.progress.step(spark, "erase: silver and gold"):
        silver = lake.erase_silver(request, asked, chosen)
        gold = lake.erase_gold(request, asked)
    counts = certificate.count(chosen)
    counts |= {"segments": len(plan.changes), "rows": sum(each.changed for each in plan.changes),
               "silver_rows": sum(silver.values()), "snapshots": len(plan.snapshots)}  # fmt: skip
    changed = former or plan.changes or plan.snapshots or silver or any(gold.values())
    path = None
    if changed or not certificate.certificates(work):
        with request.progress.step(spark, "erase: verifying"):
            more = {"silver": silver, "gold": gold}
            path = certificate.write(request, asked, chosen, plan, more)
    chosen.unpersist()
    swap.end(folder)
    return JobReport(counts, [], path)


def _select(request: JobRequest, asked: ErasureOrder, folder: Location) -> DataFrame:
    """Return what the order selects in the log and in silver, and what former runs selected."""
    facts = t.facts_in_log(source.read(request.spark, list(bronze.every(folder).values())))
    in_silver = lake.facts(request)
    if in_silver is not None:
        facts = facts.unionByName(in_silver, allowMissingColumns=True)
    work = certificate.folder_of(request, asked)
    return t.select(facts, asked, certificate.read_selected(request, work))
