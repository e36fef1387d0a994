"""Segments and snapshots of an export: read with their files, written again, and removed."""

import json
import shutil
from functools import partial, reduce
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from spark import schemas, segments
from spark.errors import SegmentTorn
from spark.files import writable
from spark.jobs.erase import payload, rewrite, schema
from spark.jobs.erase import transforms as t
from spark.jobs.erase.order import ErasureOrder
from spark.jobs.erase.rewrite import TEMPORARY
from spark.jobs.erase.swap import SegmentChange
from spark.segments import MANIFEST, SegmentFile

# Executors need no copy of this program: these modules travel with the functions.
cloudpickle.register_pickle_by_value(payload)
cloudpickle.register_pickle_by_value(rewrite)
SNAPSHOT_IDS = {
    "messages": ("id",),
    "topic_attachments": ("id", "source_message_id"),
    "enrichments": ("message_id",),
}


def every(folder: Path) -> dict[str, SegmentFile]:
    """All segments by file name, replaced ones too: they have the same content."""
    files = sorted(folder.rglob(f"*{MANIFEST}"))
    every = [segments.read_manifest(file) for file in files]
    if len({segment.path.name for segment in every}) < len(every):
        raise SegmentTorn(f"{folder} has two segments of the same name")
    return {segment.path.name: segment for segment in every}


def read(spark: SparkSession, some: list[SegmentFile]) -> DataFrame:
    """The events of these segments, and `file`, the name of their file."""
    columns, frames = schemas.segments(), []
    for kind in ("parquet", "jsonl"):
        paths = [str(segment.path) for segment in some if segment.format == kind]
        if paths:
            reader = spark.read.schema(columns)
            frame = reader.parquet(*paths) if kind == "parquet" else reader.json(paths)
            name = f.regexp_extract("_metadata.file_path", "[^/]+$", 0).alias("file")
            frames.append(frame.select(*columns.names, name))
    if not frames:
        return spark.createDataFrame([], columns).withColumn("file", f.lit(""))
    return reduce(DataFrame.unionByName, frames)


def select(events: DataFrame, order: ErasureOrder) -> DataFrame:
    messages = t.selected_messages(t.messages_in_log(events), order)
    attachments = t.selected_attachments(t.attachments_in_log(events), messages, order)
    return messages.unionByName(attachments)


def left(
    spark: SparkSession, some: list[SegmentFile], chosen: DataFrame, *of: Any
) -> dict[str, int]:
    """For each file, the number of rows that have content of the selection. `of`: the senders, and
    what they become."""
    rows = t.flag(read(spark, some), chosen)
    counts = rows.where("affected").where(_has_content(*of)).groupBy("file").count()
    return {row["file"]: row["count"] for row in counts.collect()}


def _has_content(senders: tuple[str, ...], becomes: str | None) -> Column:
    erased = f.udf(
        partial(payload.erase, senders=senders, becomes=becomes), "string", useArrow=False
    )
    return ~erased(f.col("name"), f.col("data_json")).eqNullSafe(f.col("data_json"))


def digests(spark: SparkSession, some: list[SegmentFile], chosen: DataFrame) -> dict[str, Any]:
    """For each file: its rows, affected rows, and the digests `untouched` and `envelopes`."""
    rows = t.hash_rows(t.flag(read(spark, some), chosen), "file", ["data_json"])
    return {row["file"]: row.asDict() for row in t.digests(rows, "file").collect()}


def stage(
    spark: SparkSession, folder: Path, some: list[SegmentFile], chosen: DataFrame,
    order: ErasureOrder,
) -> list[SegmentChange]:  # fmt: skip
    """Write the new files of these segments beside them, on the executors."""
    for segment in some:
        segments.verify_file(segment.path, segment.bytes, segment.sha256)
    before = digests(spark, some, chosen)
    rows = t.flag(read(spark, some), chosen).where("affected")
    paths = {segment.path.name: str(segment.path) for segment in some}
    erase = partial(payload.erase, senders=order.senders, becomes=order.sender_becomes)
    staged = (
        rows.select("file", "event_id")
        .groupBy("file")
        .applyInArrow(lambda events: _stage(events, paths, erase), schema.STAGED)
    )
    done = {row["file"]: row for row in staged.collect()}
    changes = []
    for segment in some:
        name = segment.path.name
        row, digest = done.get(name), before[name]
        if row is None or not row["changed"]:
            continue
        manifest = segment.path.with_name(f"{segment.stem}{MANIFEST}")
        changes.append(
            SegmentChange(
                str(segment.path.relative_to(folder)), str(manifest.relative_to(folder)),
                digest["rows"], row["changed"], segment.sha256, row["sha256"], row["bytes"],
                digest["untouched"], digest["envelopes"],
            )
        )  # fmt: skip
    return changes


def _stage(events: Any, paths: dict[str, str], erase: rewrite.Erase) -> Any:
    """On an executor: write one segment again. `events`: its affected events."""
    arrow = import_module("pyarrow")
    name = events.column("file")[0].as_py()
    made = rewrite.rewrite(Path(paths[name]), set(events.column("event_id").to_pylist()), erase)
    return arrow.table(
        {
            "file": [name],
            "changed": arrow.array([made.changed], arrow.int64()),
            "bytes": arrow.array([made.bytes], arrow.int64()),
            "sha256": [made.sha256],
        }
    )


# -- snapshots ---------------------------------------------------------------------------


def snapshots_with(spark: SparkSession, source: Path, chosen: DataFrame) -> list[str]:
    """The names of snapshots with something of the selection."""
    frames = []
    for manifest in sorted(source.glob("snapshot/[!.]*/manifest.json")):
        try:
            fields = json.loads(manifest.read_bytes())
            files = {table: manifest.parent / fields["files"][table]["file"]
                     for table in SNAPSHOT_IDS}  # fmt: skip
            is_parquet = fields["format"] == "parquet"
        except (OSError, ValueError, KeyError, TypeError):
            raise SegmentTorn(f"{manifest} is truncated or malformed") from None
        name = f.lit(manifest.parent.name).alias("snapshot")
        frames += [_ids(spark, file, is_parquet, SNAPSHOT_IDS[table]).select(name, "id")
                   for table, file in files.items()]  # fmt: skip
    if not frames:
        return []
    rows = reduce(DataFrame.unionByName, frames).join(chosen, "id", "left_semi")
    return sorted(row["snapshot"] for row in rows.select("snapshot").distinct().collect())


def _ids(spark: SparkSession, file: Path, is_parquet: bool, names: tuple[str, ...]) -> DataFrame:
    columns = ", ".join(f"{name} string" for name in names)
    reader = spark.read.schema(columns)
    rows = reader.parquet(str(file)) if is_parquet else reader.json(str(file))
    return rows.select(f.explode(f.array(*names)).alias("id"))


def remove_snapshots(source: Path, names: tuple[str, ...]) -> None:
    """Each folder disappears at once."""
    folder = source / "snapshot"
    with writable(folder):
        for name in names:
            if (folder / name).exists():
                (folder / name).rename(folder / f"{TEMPORARY}{name}")
        for left in folder.glob(f"{TEMPORARY}*"):
            shutil.rmtree(left)


def orphans(folder: Path) -> list[str]:
    """Files of segments without a manifest, which readers ignore and the exporter removes."""
    files = [file for file in folder.rglob("*") if file.suffix in (".parquet", ".jsonl", ".part")]
    return sorted(
        str(file.relative_to(folder))
        for file in files
        if not file.with_name(f"{file.stem}{MANIFEST}").exists()
    )
