"""The way in: closed segments with a manifest, verified before a row of them is read."""

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


class Segment(NamedTuple):
    """What a manifest says. `previous` is the log's newest event before the first, None unknown."""

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
        """Told apart also across epochs, whose numbers do not meet but may."""
        return f"{self.epoch}/{self.stem}"


class Cut(NamedTuple):
    """A restore took the log back: events of `epoch` above `last` never happened."""

    epoch: str
    last: int


def manifests(root: Path) -> list[Segment]:
    """Every segment below `root`, a replaced one left out, in the order of events."""
    if not root.is_dir():
        raise SegmentMissing(f"there is no directory {root}")
    return live(read_manifest(file) for file in root.rglob(f"*{MANIFEST}"))


def live(segments: Iterable[Segment]) -> list[Segment]:
    known = list(segments)
    replaced = {f"{one.epoch}/{stem}" for one in known for stem in one.replaces}
    return sorted((one for one in known if one.name not in replaced), key=lambda one: one.first)


def read_manifest(file: Path) -> Segment:
    try:
        said: dict[str, Any] = json.loads(file.read_bytes())
        version = said["schema_version"]
    except FileNotFoundError:
        raise SegmentMissing(f"the manifest {file} is gone") from None
    except OSError as error:
        raise SegmentTorn(f"the manifest {file} can't be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise SegmentTorn(f"the manifest {file} is cut off or malformed") from None
    if version not in SCHEMA_VERSIONS or said.get("kind") != "events":
        what = f"{said.get('kind')!r} in schema version {version!r}"
        raise SchemaVersionUnknown(f"{file} speaks of {what}, which this program does not know")
    sound = (
        all(type(said.get(name)) is int for name in NUMBERS)
        and all(isinstance(said.get(name), str) for name in WORDS)
        and said["format"] in ("parquet", "jsonl")
        and FILE_NAME.fullmatch(said["file"])
    )
    if not sound:
        raise SegmentTorn(f"the manifest {file} lacks a field or has one of another type")
    stem = file.name.removesuffix(MANIFEST)
    named = f"segment-{said['first_event_id']:020d}-{said['last_event_id']:020d}"
    if stem != named or said["file"] != f"{named}.{said['format']}":
        raise SegmentTorn(f"the manifest {file} speaks of another segment: {said['file']}")
    return Segment(
        path=file.parent / said["file"],
        stem=stem,
        epoch=said["epoch"],
        first=said["first_event_id"],
        last=said["last_event_id"],
        previous=said.get("previous_event_id"),
        rows=said["rows"],
        format=said["format"],
        bytes=said["bytes"],
        sha256=said["sha256"],
        replaces=tuple(said.get("replaces") or ()),
    )


def verify(segment: Segment) -> None:
    """Size first: it tells a torn segment from an altered one. Then what the file itself says."""
    verify_file(segment.path, segment.bytes, segment.sha256)
    rows = _lines(segment.path) if segment.format == "jsonl" else _rows(segment)
    if rows != segment.rows:
        raise SegmentTorn(
            f"{segment.path} holds {rows:,} events, its manifest says {segment.rows:,}"
        )


def _rows(segment: Segment) -> int:
    """By the footer of Parquet; its events must be those that the manifest names."""
    try:
        said = parquet.read_metadata(segment.path)
    except (ArrowException, OSError) as error:
        what = str(error).split("\n", 1)[0][:200]
        raise SegmentTorn(f"{segment.path} is no Parquet file: {what}") from None
    groups = [said.row_group(place) for place in range(said.num_row_groups)]
    columns = [group.column(place) for group in groups for place in range(group.num_columns)]
    ids = [one.statistics for one in columns if one.path_in_schema == "event_id"]
    for one in ids:
        if one is None or not one.has_min_max:
            continue
        if one.min < segment.first or one.max > segment.last:
            raise SegmentTorn(
                f"{segment.path} holds events {one.min} to {one.max}, which its name does not say"
            )
    return int(said.num_rows)


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def verify_file(path: Path, size: int, sha256: str) -> None:
    try:
        with path.open("rb") as file:
            found = file.seek(0, 2)
            if found != size:
                raise SegmentTorn(f"{path} has {found:,} bytes, its manifest says {size:,}")
            file.seek(0)
            digest = hashlib.sha256()
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
    except FileNotFoundError:
        raise SegmentMissing(f"the manifest of {path} is there, but the segment is not") from None
    except OSError as error:
        raise SegmentTorn(f"{path} can't be read: {error.strerror}") from None
    if digest.hexdigest() != sha256:
        raise WrongHash(f"{path} holds other bytes than its manifest says")


def read(spark: SparkSession, segments: Sequence[Segment]) -> DataFrame:
    """The events of these segments, with the promised columns whatever the format."""
    schema = schemas.segments()
    frames = []
    by_format = {kind: [s for s in segments if s.format == kind] for kind in ("parquet", "jsonl")}
    if parquet := by_format["parquet"]:
        frames.append(spark.read.schema(schema).parquet(*[str(one.path) for one in parquet]))
    if lines := by_format["jsonl"]:
        reader = spark.read.schema(schema).option("mode", "PERMISSIVE")
        frames.append(reader.json([str(one.path) for one in lines]))
    if not frames:
        return spark.createDataFrame([], schema)
    return reduce(DataFrame.unionByName, frames).select(*schema.names)


def gaps(segments: Sequence[Segment]) -> list[str]:
    """What is missing between segments, where the manifests tell; a sentence each."""
    said = []
    ordered = sorted(segments, key=lambda one: one.first)
    for before, after in pairwise(ordered):
        if after.previous is None:
            missing = after.first > before.last + 1 and after.epoch == before.epoch
        else:
            missing = after.previous > before.last
        if missing:
            last = after.first - 1 if after.previous is None else after.previous
            said.append(f"events {before.last + 1} to {last} are in no segment")
    return said


def cuts(segments: Sequence[Segment]) -> list[Cut]:
    """Where a restore began a new epoch: what the old one wrote after the backup is void."""
    begins: dict[str, Segment] = {}
    for one in sorted(segments, key=lambda each: each.first):
        begins.setdefault(one.epoch, one)
    ordered = sorted(begins.values(), key=lambda one: one.first)
    found: dict[str, int] = {}
    for place, after in enumerate(ordered):
        if after.previous is None:
            continue
        for before in ordered[:place]:
            found[before.epoch] = min(after.previous, found.get(before.epoch, after.previous))
    return [
        Cut(epoch, last)
        for epoch, last in sorted(found.items())
        if any(one.epoch == epoch and one.last > last for one in segments)
    ]


def is_covered(one: Segment, done: set[str]) -> bool:
    """Whether all that a compaction put into it was taken before."""
    return bool(one.replaces) and all(f"{one.epoch}/{stem}" in done for stem in one.replaces)


def void(frame: DataFrame, cut: Cut) -> DataFrame:
    return frame.where((f.col("epoch") == cut.epoch) & (f.col("event_id") > cut.last))


def happened(frame: DataFrame, known: Sequence[Cut]) -> DataFrame:
    """Without what restores took back."""
    for cut in known:
        frame = frame.where(~((f.col("epoch") == cut.epoch) & (f.col("event_id") > cut.last)))
    return frame
