"""Finds what an order selects in exported segments and snapshots, and writes files without it."""

from collections.abc import Iterable
from functools import partial, reduce
from importlib import import_module
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark import segments, snapshots, source, verification
from spark.errors import ChecksFailed, SegmentTorn, WrongHash
from spark.files import remove_folder, writable
from spark.jobs.erase import payload, schema
from spark.jobs.erase import transforms as t
from spark.jobs.erase.order import ErasureOrder
from spark.jobs.erase.rewrite import rewrite
from spark.jobs.erase.swap import SegmentChange
from spark.locations import Location, location
from spark.request import JobRequest
from spark.segments import EVENTS, MANIFEST, SegmentFile

READERS = {"parquet": "parquet", "jsonl": "json"}  # formats by the ends of names


def every(folder: Location, log: str = EVENTS) -> dict[str, SegmentFile]:
    """Return all segments by file name, including replaced ones, whose content is identical."""
    held = [segments.read_manifest(file, log) for file in sorted(folder.rglob(f"*{MANIFEST}"))]
    named = {segment.path.name: segment for segment in held}
    if len(named) < len(held):
        raise SegmentTorn(f"{folder} has two segments of the same name")
    return named


def with_content(
    request: JobRequest, held: dict[str, SegmentFile], chosen: DataFrame, order: ErasureOrder
) -> DataFrame:
    """Return a row for each event with selected content: `file_path` and `entity_id`. Verify all
    segments, which shows what columns they have beyond the schema."""
    every_one = list(held.values())
    facts = verification.verify(request, every_one)
    if not held:
        return request.spark.createDataFrame([], "file_path string, entity_id string")
    added = {name: fact.added for name, fact in facts.items()}
    rows = source.read(request.spark, every_one, added=added, more_columns=["_metadata.file_path"])
    events = t.of(rows, chosen, "entity_id")
    is_erased = t.erase_event(order).eqNullSafe(f.col("data_json"))
    return events.where(~is_erased).select("file_path", "entity_id")


def stage(
    request: JobRequest, folder: Location, held: dict[str, SegmentFile], chosen: DataFrame,
    order: ErasureOrder,
) -> tuple[SegmentChange, ...]:  # fmt: skip
    """Write new files beside the segments with content, on the executors."""
    erase = partial(payload.erase, senders=order.senders, becomes=order.sender_becomes)
    grouped = with_content(request, held, chosen, order).groupBy("file_path")
    rows = grouped.applyInArrow(lambda events: _rewrite(events, erase), schema.REWRITTEN)
    changes = []
    for row in sorted(rows.collect()):
        facts = row.asDict()
        segment = held[location(facts.pop("file_path")).name]
        if facts["before"] != segment.sha256:
            raise WrongHash(f"{segment.path} has another hash than its manifest")
        file = str(segment.path.relative_to(folder))
        changes.append(SegmentChange(file=file, rows=segment.rows, **facts))
    return tuple(changes)


def _rewrite(events: Any, erase: Any) -> Any:
    """Rewrite a segment, on an executor. `events`: those with content."""
    url, entity_ids = events.column("file_path")[0].as_py(), events.column("entity_id")
    return import_module("pyarrow").Table.from_pylist(
        [rewrite(url, set(entity_ids.to_pylist()), erase)]
    )


# -- snapshots ---------------------------------------------------------------------------


def snapshots_with(spark: SparkSession, exported: Location, chosen: DataFrame) -> tuple[str, ...]:
    """Return the names for snapshots that contain selected content."""
    files = [
        snapshot.path / snapshot.tables[table].file
        for snapshot in snapshots.every(exported)
        for table in schema.SNAPSHOT_TABLES
    ]
    frames = [spark.createDataFrame([], f"{schema.SNAPSHOT_IDS}, file_path string")]
    for end, reader in READERS.items():
        if some := [str(path) for path in files if path.name.endswith(end)]:
            rows = spark.read.schema(schema.SNAPSHOT_IDS).format(reader).load(some)
            frames.append(rows.select("*", "_metadata.file_path"))
    ids = f.explode(f.array("id", "message_id", "source_message_id")).alias("id")
    rows = reduce(DataFrame.unionByName, frames).select("file_path", ids)
    mine = t.of(rows, chosen, "id").select("file_path").distinct().collect()
    return tuple(sorted({location(row["file_path"]).parent.name for row in mine}))


def remove_snapshots(exported: Location, names: Iterable[str]) -> None:
    """Remove snapshots, manifests first: without its manifest, no reader sees a snapshot."""
    for folder in (exported / snapshots.FOLDER / name for name in names):
        with writable(folder):
            (folder / snapshots.MANIFEST).unlink(missing_ok=True)
            remove_folder(folder)
        if folder.exists():
            raise ChecksFailed(f"the snapshot {folder} can't be removed", "remove it by hand")
