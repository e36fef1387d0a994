"""Replays the log up to a snapshot and publishes every difference with its kind."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from appliance.shared import segment_chain
from appliance.shared.segment_chain import Gap
from spark import segments, snapshots, source, verification
from spark.errors import DifferencesFound
from spark.jobs.audit import faults, schema
from spark.jobs.audit import transforms as t
from spark.jobs.ingest import transforms as ingest
from spark.request import JobReport, JobRequest
from spark.snapshots import SnapshotFolder
from spark.tables import Dataset


def run(request: JobRequest) -> JobReport:
    spark = request.spark
    exported = segments.manifests(request.source / "events")
    snapshot = snapshots.choose(snapshots.every(request.source), exported, request.source)
    mine = [segment for segment in exported if segment.first <= snapshot.last]
    request.size_shuffles(sum(segment.bytes for segment in mine))
    with request.progress.step(spark, "audit: verifying"):
        facts = verification.verify(request, mine)
        mine = verification.count_once(mine, {name: fact.ids for name, fact in facts.items()})
        for table in snapshot.tables.values():
            segments.verify_file(snapshot.path / table.file, table.bytes, table.sha256)
    happened = source.drop_undone(source.read(spark, mine), segments.epoch_ends(mine))
    events = happened.where(f.col("event_id") <= snapshot.last)
    dataset = Dataset(request.out / "gold" / "audit", schema.NAME)
    draft = dataset.draft()
    with request.progress.step(spark, "audit: comparing"):
        draft.overwrite(_differences(request, events, snapshot, mine).coalesce(1), "differences")
    kinds = draft.read(spark, "differences").groupBy("kind").count().collect()
    counts = {row["kind"]: row["count"] for row in sorted(kinds)}
    summary = spark.createDataFrame([*counts.items()], schema.OUTPUT["summary"])
    draft.overwrite(summary.coalesce(1), "summary")
    made = request.commit(dataset, draft, {"snapshot": snapshot.path.name, "counts": counts})
    total = sum(counts.values())
    summary_counts = {"as_of_event_id": snapshot.last, "differences": total, **counts}
    sentence = f"the log and the snapshot differ in {total:,} rows"
    error = DifferencesFound(sentence, f"read the table: {made.root}/differences")
    return JobReport(summary_counts, [], made.root, error if total else None)


def _differences(
    request: JobRequest,
    events: DataFrame,
    snapshot: SnapshotFolder,
    mine: list[segments.SegmentFile],
) -> DataFrame:
    parsed = ingest.messages_of(events)
    sound = ingest.changes(parsed).where("sound").drop("sound")
    history = ingest.history(sound).persist()
    logged, kept = t.state(events, history), t.kept(tables(request, snapshot))
    differences = faults.log_faults(events, history)
    for noun in schema.COMPARED:
        differences = differences.unionByName(t.compare(noun, logged[noun], kept[noun]))
    rows = [
        ("log.gap", f"{gap.first}-{gap.last}", gap.first, None, segment_chain.sentence(gap))
        for gap in gaps(request, mine, snapshot)
    ]
    gone = request.spark.createDataFrame(rows, schema.OUTPUT["differences"])
    return differences.unionByName(gone).select(*t.COLUMNS)


def gaps(
    request: JobRequest, mine: list[segments.SegmentFile], snapshot: SnapshotFolder
) -> list[Gap]:
    """Return every gap with exact ids: between segments, inside one, at the start and at the
    end."""
    chain = segment_chain.gaps(mine, segments.begins_after(request.source))
    last = max((segment.last for segment in mine), default=0)
    if last < snapshot.last:
        chain.append(Gap(last + 1, snapshot.last, "are in no segment", snapshot.last - last))
    return [exact for gap in chain for exact in _exact(request, gap, mine)]


def _exact(request: JobRequest, gap: Gap, mine: list[segments.SegmentFile]) -> list[Gap]:
    """Return at most GAPS_MAX gaps inside a segment, whose manifest shows only the sum."""
    if gap.rows == gap.last - gap.first + 1:
        return [gap]
    theirs = [result for result in mine if (result.first, result.last) == (gap.first, gap.last)]
    end = request.spark.range(gap.last + 1, gap.last + 2).toDF("event_id")
    ids = source.read(request.spark, theirs).select("event_id").unionByName(end).distinct()
    before = f.lag("event_id", 1, gap.first - 1).over(Window.orderBy("event_id"))
    ends = ids.where("event_id is not null").select(before.alias("before"), "event_id")
    ends = ends.where("event_id > before + 1").orderBy("event_id").limit(schema.GAPS_MAX)
    return [
        Gap(row["before"] + 1, row["event_id"] - 1, gap.reason, row["event_id"] - row["before"] - 1)
        for row in ends.collect()
    ]


def tables(request: JobRequest, snapshot: SnapshotFolder) -> dict[str, DataFrame]:
    frames = {}
    for name, promised in schema.SNAPSHOT.items():
        reader = request.spark.read.schema(promised)
        path = str(snapshot.path / snapshot.tables[name].file)
        frames[name] = reader.parquet(path) if snapshot.format == "parquet" else reader.json(path)
    return frames
