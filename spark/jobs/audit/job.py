"""Plays the log of a snapshot's time again and publishes every difference with its kind."""

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
from spark.request import Report, Request


class Snapshot(NamedTuple):
    path: Path
    epoch: str
    last: int
    format: str
    files: dict[str, dict[str, Any]]


def run(ask: Request) -> Report:
    spark = ask.spark
    segments = source.manifests(ask.source / "events")
    snapshot = newest_snapshot(ask.source / "snapshot", segments)
    mine = [one for one in segments if one.first <= snapshot.last]
    with ask.progress.step(spark, "audit: verifying"):
        for one in mine:
            source.verify(one)
        lacking = sorted(set(schema.SNAPSHOT) - set(snapshot.files))
        if lacking:
            raise SegmentTorn(f"the snapshot {snapshot.path} lacks {', '.join(lacking)}")
        for name, said in snapshot.files.items():
            _require(name in schema.SNAPSHOT, f"{snapshot.path} has an unknown table {name}")
            source.verify_file(snapshot.path / said["file"], said["bytes"], said["sha256"])
    happened = source.happened(source.read(spark, mine), source.cuts(mine))
    events = happened.where(f.col("event_id") <= snapshot.last)
    with Dataset(ask.out / "gold" / "audit", schema.NAME).writing() as dataset:
        draft = dataset.draft()
        with ask.progress.step(spark, "audit: comparing"):
            draft.write(_differences(ask, events, snapshot, mine).coalesce(1), "differences")
        found = draft.read(spark, "differences").groupBy("kind").count().collect()
        counts = {row["kind"]: row["count"] for row in sorted(found)}
        summary = spark.createDataFrame([*counts.items()], schema.OUTPUT["summary"])
        draft.write(summary.coalesce(1), "summary")
        made = dataset.commit(draft, {"snapshot": snapshot.path.name, "counts": counts})
    total = sum(counts.values())
    told = {"as_of_event_id": snapshot.last, "differences": total, **counts}
    return Report(told, [], made.path, differences=total)


def _differences(
    ask: Request, events: DataFrame, snapshot: Snapshot, mine: list[source.Segment]
) -> DataFrame:
    parsed = ingest.messages_of(events)
    sound = ingest.changes(parsed).where("sound").drop("sound")
    history = ingest.history(sound).persist()
    told, kept = t.state(events, history), t.kept(tables(ask, snapshot))
    found = t.log_faults(events, history)
    for noun in schema.COMPARED:
        found = found.unionByName(t.compare(noun, told[noun], kept[noun]))
    gone = [("log.gap", None, None, None, sentence) for sentence in gaps(mine, snapshot)]
    rows = ask.spark.createDataFrame(gone, schema.OUTPUT["differences"])
    return found.unionByName(rows).select(*t.COLUMNS)


def gaps(mine: list[source.Segment], snapshot: Snapshot) -> list[str]:
    """Events that are in no segment: between them, inside one, at the begin and at the end."""
    said = source.gaps(mine)
    for one in mine:
        lacking = one.last - one.first + 1 - one.rows
        if lacking:
            said.append(f"{one.stem} lacks {lacking} of its events")
    if mine and mine[0].first > 1 and mine[0].previous != 0:
        said.append(f"events 1 to {mine[0].previous or mine[0].first - 1} are in no segment")
    last = max((one.last for one in mine), default=0)
    if last < snapshot.last:
        said.append(f"events {last + 1} to {snapshot.last} are in no segment")
    return said


def tables(ask: Request, snapshot: Snapshot) -> dict[str, DataFrame]:
    found = {}
    for name, promised in schema.SNAPSHOT.items():
        reader = ask.spark.read.schema(promised)
        path = str(snapshot.path / snapshot.files[name]["file"])
        found[name] = reader.parquet(path) if snapshot.format == "parquet" else reader.json(path)
    return found


def newest_snapshot(folder: Path, segments: list[source.Segment]) -> Snapshot:
    """The newest that the log reaches; without any such the newest at all, and its gap shows."""
    files = sorted(folder.glob("[!.]*/manifest.json"))  # not one that is still being written
    if not files:
        raise SegmentMissing(
            f"there is no snapshot below {folder}", "agentlip export snapshot --out DIR"
        )
    found = sorted((_read(file) for file in files), key=lambda one: one.last)
    reach = max((one.last for one in segments), default=0)
    return ([one for one in found if one.last <= reach] or found[:1])[-1]


def _read(file: Path) -> Snapshot:
    try:
        said = json.loads(file.read_bytes())
        version, kind = said["schema_version"], said["kind"]
    except OSError as error:
        raise SegmentTorn(f"the manifest {file} can't be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise SegmentTorn(f"the manifest {file} is cut off or malformed") from None
    if version != 1 or kind != "snapshot":
        raise SchemaVersionUnknown(f"{file} speaks of {kind!r} in schema version {version!r}")
    try:
        found = Snapshot(
            file.parent, said["epoch"], int(said["as_of_event_id"]), said["format"], said["files"]
        )
        sound = all(
            source.FILE_NAME.fullmatch(one["file"])
            and type(one["bytes"]) is int
            and isinstance(one["sha256"], str)
            for one in found.files.values()
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SegmentTorn(f"the manifest {file} lacks a field") from None
    if not sound:
        raise SegmentTorn(f"the manifest {file} has a field of another type")
    return found


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise SchemaVersionUnknown(sentence)
