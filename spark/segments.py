"""Closed segments with a manifest: found, verified, put in order. Needs neither Spark nor Java."""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from appliance.shared import segment_chain
from spark import schemas
from spark.errors import (
    ColumnsDiffer,
    JobError,
    SchemaVersionUnknown,
    SegmentMissing,
    SegmentTorn,
    WrongHash,
)
from spark.locations import Location

EVENTS = "events"  # the hub's log; other logs are other kinds, with the same manifests
MANIFEST = ".manifest.json"
RETENTION = "retention.json"
SCHEMA_VERSIONS = {1}
LINE_BYTES_MAX = 16 * 1024 * 1024
NUMBERS = ("schema_version", "first_event_id", "last_event_id", "rows", "bytes")
WORDS = ("kind", "epoch", "file", "format", "sha256", "date")
ARROW_TYPES = {
    "boolean": ("bool",),
    "date": ("date32[day]",),
    "double": ("double",),
    "int64": ("int64",),
    "string": ("string", "large_string"),
    "timestamp_us_utc": ("timestamp[us, tz=UTC]",),
}
JSON_TYPES: dict[str, tuple[type, ...]] = {
    "boolean": (bool,), "date": (str,), "double": (int, float), "int64": (int,), "string": (str,),
    "timestamp_us_utc": (str,),
}  # fmt: skip
FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


class SegmentFile(NamedTuple):
    """A manifest. `previous` is the newest event before the first; None if unknown."""

    path: Location
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
    kind: str = EVENTS

    @property
    def manifest(self) -> Location:
        return self.path.with_name(f"{self.stem}{MANIFEST}")

    @property
    def name(self) -> str:
        """The name with the epoch, because ids of two epochs might overlap."""
        return f"{self.epoch}/{self.stem}"


class EpochEnd(NamedTuple):
    """A restore removed the events of `epoch` above `last`."""

    epoch: str
    last: int


def manifests(
    root: Location, kind: str = EVENTS, bad: dict[Location, JobError] | None = None
) -> list[SegmentFile]:
    """Every segment of a log below `root`, a replaced one left out, in the order of events.
    With `bad`, the error of a bad manifest is put there by its path, and not raised."""
    if not root.is_dir():
        raise SegmentMissing(f"{root} is not a directory")
    folder = root if kind == EVENTS and not (root / kind).is_dir() else root / kind
    readable = []
    for file in folder.rglob(f"*{MANIFEST}"):
        try:
            readable.append(read_manifest(file, kind))
        except JobError as error:
            if bad is None:
                raise
            bad[file] = error
    return live(readable)


def live(segments: Iterable[SegmentFile]) -> list[SegmentFile]:
    manifests = list(segments)
    replaced = {f"{segment.epoch}/{stem}" for segment in manifests for stem in segment.replaces}
    return sorted(
        (segment for segment in manifests if segment.name not in replaced),
        key=lambda segment: segment.first,
    )


def read_manifest(file: Location, kind: str = EVENTS) -> SegmentFile:
    try:
        fields: dict[str, Any] = json.loads(file.read_bytes())
        version = fields["schema_version"]
    except FileNotFoundError:
        raise SegmentMissing(f"the manifest {file} does not exist") from None
    except OSError as error:
        raise SegmentTorn(f"the manifest {file} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise SegmentTorn(f"the manifest {file} is truncated or malformed") from None
    if version not in SCHEMA_VERSIONS or fields.get("kind") != kind:
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
        kind=kind,
    )


def verify(segment: SegmentFile) -> tuple[str, ...]:
    """Compare the size, which detects a truncated segment, then the hash, the columns and the
    rows. Returns the columns that the schema does not have. Only the first of JSON lines is
    compared."""
    promised = {
        column["name"]: column["type"] for column in schemas.load(f"{segment.kind}-1")["columns"]
    }
    with _verified(segment.path, segment.bytes, segment.sha256) as file:
        compare = _compare_lines if segment.format == "jsonl" else _compare_footer
        there, wrong, rows = compare(segment, file, promised)
    if there:
        wrong = [f"has no column {name}" for name in promised if name not in there] + wrong
    if wrong:
        raise ColumnsDiffer(f"{segment.path} {', '.join(wrong)}")
    if rows != segment.rows:
        raise SegmentTorn(
            f"{segment.path} has {rows:,} events; its manifest lists {segment.rows:,}"
        )
    return tuple(name for name in there if name not in promised)


def _compare_footer(
    segment: SegmentFile, file: Any, promised: dict[str, str]
) -> tuple[list[str], list[str], int]:
    """Read the Parquet footer. Its event ids must be in the range of the manifest."""
    from pyarrow import parquet  # listing segments does without it
    from pyarrow.lib import ArrowException

    try:
        opened = parquet.ParquetFile(file)
    except (ArrowException, OSError) as error:
        what = str(error).split("\n", 1)[0][:200]
        raise SegmentTorn(f"{segment.path} is not a Parquet file: {what}") from None
    metadata = opened.metadata
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    columns = [group.column(index) for group in groups for index in range(group.num_columns)]
    for ids in (column.statistics for column in columns if column.path_in_schema == "event_id"):
        known = ids is not None and ids.has_min_max
        if known and (ids.min < segment.first or ids.max > segment.last):
            raise SegmentTorn(
                f"{segment.path} holds events {ids.min} to {ids.max}; its name says"
                f" {segment.first} to {segment.last}"
            )
    wrong = [
        f"has {field.name} as {field.type}"
        for field in opened.schema_arrow
        if field.name in promised and str(field.type) not in ARROW_TYPES[promised[field.name]]
    ]
    return opened.schema_arrow.names, wrong, metadata.num_rows


def _compare_lines(
    _segment: SegmentFile, file: Any, promised: dict[str, str]
) -> tuple[list[str], list[str], int]:
    try:
        row = json.loads(file.readline(LINE_BYTES_MAX))
    except ValueError:
        row = None
    if not isinstance(row, dict):
        row = {}  # the row goes to the quarantine
    wrong = [
        f"has {name} as {type(value).__name__}"
        for name, value in row.items()
        if name in promised
        and value is not None
        and (type(value) not in JSON_TYPES[promised[name]])
    ]
    file.seek(0)
    return list(row), wrong, sum(1 for _ in file)


def state(manifest: Location) -> list[list[Any]]:
    """Name, size and time of change of a segment's files: equal as long as nobody repairs it."""
    files = sorted(manifest.parent.glob(f"{manifest.name.removesuffix(MANIFEST)}.*"))
    stats = [(file.name, file.lstat()) for file in files]
    return [[name, stat.st_size, stat.st_ctime_ns] for name, stat in stats]


def hash_of(path: Location) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify_file(path: Location, size: int, sha256: str) -> None:
    with _verified(path, size, sha256):
        pass


@contextmanager
def _verified(path: Location, size: int, sha256: str) -> Iterator[Any]:
    """The file, if it has this size and hash."""
    try:
        with path.open("rb") as file:
            actual = file.seek(0, os.SEEK_END)
            if actual != size:
                raise SegmentTorn(f"{path} has {actual:,} bytes; its manifest requires {size:,}")
            file.seek(0)
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                raise WrongHash(f"{path} has another hash than its manifest")
            file.seek(0)
            yield file
    except FileNotFoundError:
        raise SegmentMissing(f"{path} is missing, but its manifest exists") from None
    except OSError as error:
        raise SegmentTorn(f"{path} cannot be read: {error.strerror}") from None


def gaps(segments: Sequence[SegmentFile], begins_after: int = 0) -> list[str]:
    """A message for each gap that the manifests of one log show; see `segment_chain.gaps`."""
    return [
        segment_chain.sentence(gap, segments[0].kind)
        for gap in segment_chain.gaps(segments, begins_after)
    ]


def begins_after(root: Location, kind: str = EVENTS) -> int:
    """The newest event of a log that retention removed below `root`; 0 if it removed none."""
    try:
        number = json.loads((root / kind / RETENTION).read_bytes())["begins_after"]
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, KeyError, TypeError):
        number = None
    if type(number) is not int or number < 0:
        raise SegmentTorn(f"{root / kind / RETENTION} is truncated or malformed")
    return number


def cuts(segments: Sequence[SegmentFile]) -> list[EpochEnd]:
    """The ends of epochs: a restore discards the events after the backup."""
    begins: dict[str, SegmentFile] = {}
    for segment in sorted(segments, key=lambda segment: segment.first):
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
