"""Writes old days' segments to the archive, verifies them, and publishes the catalogue."""

from collections import Counter
from functools import reduce

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from spark import schemas, segments, source, verification
from spark.errors import EmptyRange, SegmentTorn
from spark.files import remove_folder
from spark.jobs.archive import plan, schema
from spark.jobs.archive import transforms as t
from spark.jobs.delivery.plan import day_of
from spark.last_run import iso
from spark.locations import Location, location
from spark.request import JobReport, JobRequest
from spark.results import warn_of


def run(request: JobRequest) -> JobReport:
    catalogue = plan.read(request.out)
    plan.sweep(request.out, catalogue)
    pending = plan.pending(request, catalogue)
    if not any(log.segments for log in pending) and not catalogue["logs"]:
        raise EmptyRange(f"no segments before {request.options['before']}")
    added: Counter[str] = Counter()
    logs = {}
    for each in pending:
        with request.progress.step(request.spark, f"archive: {each.log}"):
            logs[each.log] = _log(request, each, catalogue, added)
    results = [warn_of(f"{log}.gaps", log, parts["gaps"]) for log, parts in sorted(logs.items())]
    changed = any(catalogue["logs"].get(log) != parts for log, parts in logs.items())
    if changed:
        catalogue |= {"updated_at": iso(request.now), "logs": catalogue["logs"] | logs}
        request.require_lease()
        plan.write(request.out, catalogue)
    return JobReport(dict(added), results, request.out if changed else None)


def _log(
    request: JobRequest, pending: plan.PendingLog, catalogue: plan.Entry, added: Counter[str]
) -> plan.Entry:
    """Return the log's entry in the next catalogue, with new files complete and verified."""
    log = pending.log
    former = plan.part(catalogue, log, "files")
    rewritten = [file for file in former if file["date"] in pending.days]
    kept = [file for file in former if file["date"] not in pending.days]
    made = _write(request, pending, rewritten) if pending.days else []
    archived = plan.with_new(plan.part(catalogue, log, "segments"), pending.new)
    added.update(
        segments=len(pending.new),
        rows=sum(file["rows"] for file in made) - sum(file["rows"] for file in rewritten),
        files=len(made),
    )
    return {
        "schema_version": 1,
        "segments": archived,
        "files": sorted([*kept, *made], key=lambda file: (file["date"], file["first_event_id"])),
        "cuts": plan.cuts_of(request, log, catalogue),
        "gaps": plan.gaps_of(request, log, archived),
    }


def _write(
    request: JobRequest, pending: plan.PendingLog, former: list[plan.Entry]
) -> list[plan.Entry]:
    """Write whole days: the pending segments and the rows that the archive already has."""
    log = pending.log
    mine = [segment for segment in pending.segments if day_of(segment) in pending.days]
    verification.verify(request, mine)
    for file in former:
        segments.verify_file(request.out / file["file"], file["bytes"], file["sha256"])
    frames = [source.read(request.spark, mine, log)]
    if former:
        frames.append(
            _read_archived(request.spark, [request.out / file["file"] for file in former], log)
        )
    draft, expected = request.out / f".draft-{log}", Observation()
    ordered = t.order(reduce(DataFrame.unionByName, frames))
    ordered = ordered.observe(expected, f.count(f.lit(1)).alias("rows"))
    writer = ordered.write.partitionBy(schema.DAY, schema.EPOCH)
    writer = writer.option("maxRecordsPerFile", schema.FILE_ROWS_MAX)
    writer = writer.option("parquet.block.size", schema.ROW_GROUP_BYTES)
    writer.option("compression", "zstd").parquet(str(draft))
    stored = request.spark.read.schema(ordered.schema).parquet(str(draft))
    made = [
        plan.publish(location(row["path"]), request.out, log, row["entry"].asDict())
        for row in t.extents(stored).collect()
    ]
    remove_folder(draft)
    rows, wrote = sum(file["rows"] for file in made), expected.get["rows"]
    if rows != wrote:
        raise SegmentTorn(f"{log}: the archive has {rows:,} rows, not {wrote:,}")
    return made


def _read_archived(spark: SparkSession, paths: list[Location], log: str) -> DataFrame:
    promised = schemas.segments(log)
    reader = spark.read.schema(promised)
    return reader.parquet(*[str(path) for path in paths]).select(*promised.names)
