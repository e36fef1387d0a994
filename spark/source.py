"""Input: closed segments with a manifest, verified before they are read."""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from pyarrow import parquet
from pyarrow.lib import ArrowException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark import schemas
from spark.errors import SchemaVersionUnknown, SegmentMissing, SegmentTorn, WrongHash

MANIFEST = ".manifest.json"
SCHEMA_VERSIONS = {1}
CHUNK_BYTES = 4 * 1024 * 1024
NUMBERS = ("schema_version", "first_event_id", "last_event_id", "rows", "bytes")
WORDS = ("kind", "epoch", "file", "format", "sha256", "date")
FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


class SegmentFile(NamedTuple):
    """A manifest. `previous` is the newest event before the first; None if unknown."""

    path: Path
    stem: str
    epoch: str
    first: int
    last: int
    previous: int | None
    rows: int
    format: str
    bytes: int
    sha256: str
    replaces: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name with the epoch, because ids of two epochs might overlap."""
        return f"{self.epoch}/{self.stem}"


class EpochEnd(NamedTuple):
    """A restore removed the events of `epoch` above `last`."""

    epoch: str
    last: int


def manifests(root: Path) -> list[SegmentFile]:
    """Every segment below `root`, a replaced one left out, in the order of events."""
    if not root.is_dir():
        raise SegmentMissing(f"{root} is not a directory")
    return live(read_manifest(file) for file in root.rglob(f"*{MANIFEST}"))


def live(segments: Iterable[SegmentFile]) -> list[SegmentFile]:
    manifests = list(segments)
    replaced = {f"{segment.epoch}/{stem}" for segment in manifests for stem in segment.replaces}
    return sorted(
        (segment for segment in manifests if segment.name not in replaced),
        key=lambda segment: segment.first,
    )


def read_manifest(file: Path) -> SegmentFile:
    try:
        fields: dict[str, Any] = json.loads(file.read_bytes())
        version = fields["schema_version"]
    except FileNotFoundError:
        raise SegmentMissing(f"the manifest {file} does not exist") from None
    except OSError as error:
        raise SegmentTorn(f"the manifest {file} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise SegmentTorn(f"the manifest {file} is truncated or malformed") from None
    if version not in SCHEMA_VERSIONS or fields.get("kind") != "events":
        what = f"{fields.get('kind')!r} in schema version {version!r}"
        raise SchemaVersionUnknown(f"{file} has {what}, which this program does not support")
    sound = (
        all(type(fields.get(name)) is int for name in NUMBERS)
        and all(isinstance(fields.get(name), str) for name in WORDS)
        and fields["format"] in ("parquet", "jsonl")
        and FILE_NAME.fullmatch(fields["file"])
    )
    if not sound:
        raise SegmentTorn(f"the manifest {file} has a missing field or a field of another type")
    stem = file.name.removesuffix(MANIFEST)
    named = f"segment-{fields['first_event_id']:020d}-{fields['last_event_id']:020d}"
    if stem != named or fields["file"] != f"{named}.{fields['format']}":
        raise SegmentTorn(f"the manifest {file} describes another segment: {fields['file']}")
    return SegmentFile(
        path=file.parent / fields["file"],
        stem=stem,
        epoch=fields["epoch"],
        first=fields["first_event_id"],
        last=fields["last_event_id"],
        previous=fields.get("previous_event_id"),
        rows=fields["rows"],
        format=fields["format"],
        bytes=fields["bytes"],
        sha256=fields["sha256"],
        replaces=tuple(fields.get("replaces") or ()),
    )


def verify(segment: SegmentFile) -> None:
    """Compare the size, which detects a truncated segment, then the hash and the rows."""
    verify_file(segment.path, segment.bytes, segment.sha256)
    rows = _lines(segment.path) if segment.format == "jsonl" else _rows(segment)
    if rows != segment.rows:
        raise SegmentTorn(
            f"{segment.path} has {rows:,} events; its manifest lists {segment.rows:,}"
        )


def _rows(segment: SegmentFile) -> int:
    """Read the Parquet footer. Its event ids must be in the range of the manifest."""
    try:
        metadata = parquet.read_metadata(segment.path)
    except (ArrowException, OSError) as error:
        what = str(error).split("\n", 1)[0][:200]
        raise SegmentTorn(f"{segment.path} is not a Parquet file: {what}") from None
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    columns = [group.column(index) for group in groups for index in range(group.num_columns)]
    ids = [column.statistics for column in columns if column.path_in_schema == "event_id"]
    for column in ids:
        if column is None or not column.has_min_max:
            continue
        if column.min < segment.first or column.max > segment.last:
            raise SegmentTorn(
                f"{segment.path} holds events {column.min} to {column.max}; its name says"
                f" {segment.first} to {segment.last}"
            )
    return int(metadata.num_rows)


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def verify_file(path: Path, size: int, sha256: str) -> None:
    try:
        with path.open("rb") as file:
            actual = file.seek(0, 2)
            if actual != size:
                raise SegmentTorn(f"{path} has {actual:,} bytes; its manifest requires {size:,}")
            file.seek(0)
            digest = hashlib.sha256()
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
    except FileNotFoundError:
        raise SegmentMissing(f"{path} is missing, but its manifest exists") from None
    except OSError as error:
        raise SegmentTorn(f"{path} cannot be read: {error.strerror}") from None
    if digest.hexdigest() != sha256:
        raise WrongHash(f"{path} has another hash than its manifest")


def read(spark: SparkSession, segments: Sequence[SegmentFile]) -> DataFrame:
    """The events of these segments, with the columns of the schema in any format."""
    schema = schemas.segments()
    frames = []
    by_format = {kind: [s for s in segments if s.format == kind] for kind in ("parquet", "jsonl")}
    if parquet := by_format["parquet"]:
        frames.append(
            spark.read.schema(schema).parquet(*[str(segment.path) for segment in parquet])
        )
    if lines := by_format["jsonl"]:
        reader = spark.read.schema(schema).option("mode", "PERMISSIVE")
        frames.append(reader.json([str(segment.path) for segment in lines]))
    if not frames:
        return spark.createDataFrame([], schema)
    return reduce(DataFrame.unionByName, frames).select(*schema.names)


def gaps(segments: Sequence[SegmentFile]) -> list[str]:
    """A message for each gap between segments that the manifests show."""
    sentences = []
    ordered = sorted(segments, key=lambda segment: segment.first)
    for before, after in pairwise(ordered):
        if after.previous is None:
            missing = after.first > before.last + 1 and after.epoch == before.epoch
        else:
            missing = after.previous > before.last
        if missing:
            last = after.first - 1 if after.previous is None else after.previous
            sentences.append(f"events {before.last + 1} to {last} are in no segment")
    return sentences


def cuts(segments: Sequence[SegmentFile]) -> list[EpochEnd]:
    """The ends of epochs: a restore discards the events after the backup."""
    begins: dict[str, SegmentFile] = {}
    for segment in sorted(segments, key=lambda each: each.first):
        begins.setdefault(segment.epoch, segment)
    ordered = sorted(begins.values(), key=lambda segment: segment.first)
    lasts: dict[str, int] = {}
    for index, after in enumerate(ordered):
        if after.previous is None:
            continue
        for before in ordered[:index]:
            lasts[before.epoch] = min(after.previous, lasts.get(before.epoch, after.previous))
    return [
        EpochEnd(epoch, last)
        for epoch, last in sorted(lasts.items())
        if any(segment.epoch == epoch and segment.last > last for segment in segments)
    ]


def is_covered(segment: SegmentFile, done: set[str]) -> bool:
    """Whether all segments that it replaces were ingested before."""
    return bool(segment.replaces) and all(
        f"{segment.epoch}/{stem}" in done for stem in segment.replaces
    )


def void(frame: DataFrame, cut: EpochEnd) -> DataFrame:
    return frame.where((f.col("epoch") == cut.epoch) & (f.col("event_id") > cut.last))


def happened(frame: DataFrame, ends: Sequence[EpochEnd]) -> DataFrame:
    """The rows without events that restores removed."""
    for cut in ends:
        frame = frame.where(~((f.col("epoch") == cut.epoch) & (f.col("event_id") > cut.last)))
    return frame
