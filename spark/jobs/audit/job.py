"""Replays the log up to a snapshot and publishes every difference with its kind."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark import source
from spark.dataset import Dataset
from spark.errors import SchemaVersionUnknown, SegmentMissing, SegmentTorn
from spark.jobs.audit import schema
from spark.jobs.audit import transforms as t
from spark.jobs.ingest import transforms as ingest
from spark.request import JobReport, JobRequest


class SnapshotFolder(NamedTuple):
    path: Path
    epoch: str
    last: int
    format: str
    files: dict[str, dict[str, Any]]


def run(ask: JobRequest) -> JobReport:
    spark = ask.spark
    segments = source.manifests(ask.source / "events")
    snapshot = newest_snapshot(ask.source / "snapshot", segments)
    mine = [segment for segment in segments if segment.first <= snapshot.last]
    with ask.progress.step(spark, "audit: verifying"):
        for segment in mine:
            source.verify(segment)
        lacking = sorted(set(schema.SNAPSHOT) - set(snapshot.files))
        if lacking:
            raise SegmentTorn(f"the snapshot {snapshot.path} has no {', '.join(lacking)}")
        for name, file in snapshot.files.items():
            _require(name in schema.SNAPSHOT, f"{snapshot.path} has an unknown table {name}")
            source.verify_file(snapshot.path / file["file"], file["bytes"], file["sha256"])
    happened = source.happened(source.read(spark, mine), source.cuts(mine))
    events = happened.where(f.col("event_id") <= snapshot.last)
    with Dataset(ask.out / "gold" / "audit", schema.NAME).writing() as dataset:
        draft = dataset.draft()
        with ask.progress.step(spark, "audit: comparing"):
            draft.write(_differences(ask, events, snapshot, mine).coalesce(1), "differences")
        kinds = draft.read(spark, "differences").groupBy("kind").count().collect()
        counts = {row["kind"]: row["count"] for row in sorted(kinds)}
        summary = spark.createDataFrame([*counts.items()], schema.OUTPUT["summary"])
        draft.write(summary.coalesce(1), "summary")
        made = dataset.commit(draft, {"snapshot": snapshot.path.name, "counts": counts})
    total = sum(counts.values())
    summary_counts = {"as_of_event_id": snapshot.last, "differences": total, **counts}
    return JobReport(summary_counts, [], made.path, differences=total)


def _differences(
    ask: JobRequest, events: DataFrame, snapshot: SnapshotFolder, mine: list[source.SegmentFile]
) -> DataFrame:
    parsed = ingest.messages_of(events)
    sound = ingest.changes(parsed).where("sound").drop("sound")
    history = ingest.history(sound).persist()
    logged, kept = t.state(events, history), t.kept(tables(ask, snapshot))
    differences = t.log_faults(events, history)
    for noun in schema.COMPARED:
        differences = differences.unionByName(t.compare(noun, logged[noun], kept[noun]))
    gone = [("log.gap", None, None, None, sentence) for sentence in gaps(mine, snapshot)]
    rows = ask.spark.createDataFrame(gone, schema.OUTPUT["differences"])
    return differences.unionByName(rows).select(*t.COLUMNS)


def gaps(mine: list[source.SegmentFile], snapshot: SnapshotFolder) -> list[str]:
    """A message for each gap: between segments, inside one, at the start and at the end."""
    sentences = source.gaps(mine)
    for segment in mine:
        lacking = segment.last - segment.first + 1 - segment.rows
        if lacking:
            sentences.append(f"{lacking} events of {segment.stem} are missing")
    if mine and mine[0].first > 1 and mine[0].previous != 0:
        sentences.append(f"events 1 to {mine[0].previous or mine[0].first - 1} are in no segment")
    last = max((segment.last for segment in mine), default=0)
    if last < snapshot.last:
        sentences.append(f"events {last + 1} to {snapshot.last} are in no segment")
    return sentences


def tables(ask: JobRequest, snapshot: SnapshotFolder) -> dict[str, DataFrame]:
    frames = {}
    for name, promised in schema.SNAPSHOT.items():
        reader = ask.spark.read.schema(promised)
        path = str(snapshot.path / snapshot.files[name]["file"])
        frames[name] = reader.parquet(path) if snapshot.format == "parquet" else reader.json(path)
    return frames


def newest_snapshot(folder: Path, segments: list[source.SegmentFile]) -> SnapshotFolder:
    """The newest snapshot that the log reaches, or else the newest one, which shows the gap."""
    files = sorted(folder.glob("[!.]*/manifest.json"))  # without snapshots in progress
    if not files:
        raise SegmentMissing(f"{folder} contains no snapshot", "agentlip export snapshot --out DIR")
    snapshots = sorted((_read(file) for file in files), key=lambda entry: entry.last)
    last_event = max((entry.last for entry in segments), default=0)
    return ([entry for entry in snapshots if entry.last <= last_event] or snapshots[:1])[-1]


def _read(file: Path) -> SnapshotFolder:
    try:
        manifest = json.loads(file.read_bytes())
        version, kind = manifest["schema_version"], manifest["kind"]
    except OSError as error:
        raise SegmentTorn(f"the manifest {file} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise SegmentTorn(f"the manifest {file} is truncated or malformed") from None
    if version != 1 or kind != "snapshot":
        raise SchemaVersionUnknown(f"{file} has kind {kind!r} in schema version {version!r}")
    try:
        snapshot = SnapshotFolder(
            file.parent,
            manifest["epoch"],
            int(manifest["as_of_event_id"]),
            manifest["format"],
            manifest["files"],
        )
        sound = all(
            source.FILE_NAME.fullmatch(file_entry["file"])
            and type(file_entry["bytes"]) is int
            and isinstance(file_entry["sha256"], str)
            for file_entry in snapshot.files.values()
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SegmentTorn(f"the manifest {file} has a missing field") from None
    if not sound:
        raise SegmentTorn(f"the manifest {file} has a field of another type")
    return snapshot


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise SchemaVersionUnknown(sentence)
