"""Finds, verifies and orders closed segments with a manifest. Needs neither Spark nor Java."""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
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
BATCH_ROWS = 16 * 1024  # in memory at a time; more take twice as long, for new memory
NUMBERS = ("schema_version", "first_event_id", "last_event_id", "rows", "bytes")
WORDS = ("kind", "epoch", "file", "format", "sha256", "date")
# Fields of a manifest, and those of SegmentFile with the same value.
FIELDS = {"epoch": "epoch", "first_event_id": "first", "last_event_id": "last",
          "previous_event_id": "previous", "rows": "rows", "bytes": "bytes", "sha256": "sha256",
          "format": "format"}  # fmt: skip
# Types of columns in Parquet files, and of values in JSON lines.
TYPES = {
    "boolean": ("bool",),
    "date": ("date32[day]", "str"),
    "double": ("double", "float", "int"),
    "int64": ("int64", "int"),
    "string": ("string", "large_string", "str"),
    "timestamp_us_utc": ("timestamp[us, tz=UTC]", "str"),
}
EVENT_ID = re.compile(rb'"event_id": ?(\d+)')
CONTROL = re.compile(rb"\\(?:[bfnrt]|u00[01])")  # a control character, as JSON has it
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
        """Return the name with the epoch, because two epochs' ids might overlap."""
        return f"{self.epoch}/{self.stem}"


class SegmentFacts(NamedTuple):
    """Facts about a segment. added: columns beyond the schema; ids: how many different ids the
    rows have; is_plain: the payloads have no control characters, as the appliance writes them."""

    added: tuple[str, ...]
    ids: int
    is_plain: bool = True


class EpochEnd(NamedTuple):
    """An epoch's end: a restore removed the events in `epoch` above `last`."""

    epoch: str
    last: int


def manifests(
    root: Location, kind: str = EVENTS, bad: dict[Location, JobError] | None = None
) -> list[SegmentFile]:
    """Return a log's segments below `root`, without replaced ones, in event order. With `bad`, a
    bad manifest's error is put there by its path, and not raised."""
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


def read_json(file: Location, kind: str) -> dict[str, Any]:
    """Return the fields from a manifest of this kind, or from another file with a schema
    version."""
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
    return fields


def read_manifest(file: Location, kind: str = EVENTS) -> SegmentFile:
    fields = read_json(file, kind)
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
    replaces = tuple(fields.get("replaces") or ())
    return segment_of(fields, file.parent / fields["file"], stem, kind, replaces)


def segment_of(
    fields: Mapping[str, Any], path: Location, stem: str, kind: str, replaces: tuple[str, ...] = ()
) -> SegmentFile:
    known: dict[str, Any] = {field: fields.get(name) for name, field in FIELDS.items()}
    return SegmentFile(path=path, stem=stem, kind=kind, replaces=replaces, **known)


def verify(segment: SegmentFile) -> SegmentFacts:
    """Compare the size, which detects a truncated segment, then the hash, the columns, the rows
    and the ids. Every page is read, because a hash does not show that a page was damaged before
    it was written. In JSON lines, only the first line is compared with the schema."""
    arrow, compute = import_module("pyarrow"), import_module("pyarrow.compute")
    with _open_verified(segment.path, segment.bytes, segment.sha256) as file:
        try:
            types, parts = (_open_lines if segment.format == "jsonl" else _open_parquet)(file)
            added, read = _compare_columns(segment, types), list(parts)
            ids = arrow.chunked_array([part for part, _ in read], arrow.int64())
        except (arrow.ArrowException, OSError) as error:
            what = str(error).split("\n", 1)[0][:200]
            raise SegmentTorn(
                f"{segment.path} cannot be read as {segment.format}: {what}"
            ) from None
    if len(ids) != segment.rows:
        raise SegmentTorn(
            f"{segment.path} has {len(ids):,} events; its manifest lists {segment.rows:,}"
        )
    ends = compute.min_max(ids).as_py()
    if ends["min"] and not segment.first <= ends["min"] <= ends["max"] <= segment.last:
        raise SegmentTorn(
            f"{segment.path} holds events {ends['min']} to {ends['max']}; its name says"
            f" {segment.first} to {segment.last}"
        )
    is_plain = all(plain for _, plain in read)
    return SegmentFacts(added, compute.count_distinct(ids).as_py(), is_plain)


def _open_parquet(file: Any) -> tuple[dict[str, str], Iterator[Any]]:
    """Return the column types, and the ids with whether payloads are plain, which are read with
    all pages."""
    opened = import_module("pyarrow.parquet").ParquetFile(file)
    types = {field.name: str(field.type) for field in opened.schema_arrow}
    batches = opened.iter_batches(BATCH_ROWS)
    return types, ((batch.column("event_id"), _is_plain(batch)) for batch in batches)


def _is_plain(batch: Any) -> bool:
    """Return whether payloads have no control characters, by all their bytes at once."""
    arrow, compute = import_module("pyarrow"), import_module("pyarrow.compute")
    has_payload = "data_json" in batch.schema.names
    text = batch.column("data_json").buffers()[-1] if has_payload else None
    if not text:
        return True
    codes = arrow.UInt8Array.from_buffers(arrow.uint8(), text.size, [None, text])
    return bool(compute.min(codes).as_py() >= ord(" "))


def _open_lines(file: Any) -> tuple[dict[str, str], Iterator[Any]]:
    """Return the value types in the first line, "" for a null, and the ids with whether payloads
    are plain."""
    try:
        row = json.loads(file.readline(LINE_BYTES_MAX))
    except ValueError:
        row = None  # the row goes to the quarantine
    file.seek(0)
    types = {
        name: "" if value is None else type(value).__name__
        for name, value in (row.items() if isinstance(row, dict) else ())
    }
    ids, is_plain = [], True
    for line in file:
        match = EVENT_ID.search(line)
        ids.append(None if match is None else int(match[1]))
        is_plain = is_plain and CONTROL.search(line.replace(rb"\\", b"")) is None
    return types, iter([(import_module("pyarrow").array(ids, "int64"), is_plain)])


def _compare_columns(segment: SegmentFile, types: Mapping[str, str]) -> tuple[str, ...]:
    """Return columns beyond the schema. Raises ColumnsDiffer if schema columns have another type
    or are missing."""
    columns = schemas.load(f"{segment.kind}-1")["columns"]
    promised = {column["name"]: column["type"] for column in columns}
    wrong = [f"has no column {name}" for name in promised if types and name not in types]
    wrong += [
        f"has {name} as {kind}"
        for name, kind in types.items()
        if kind and name in promised and kind not in TYPES[promised[name]]
    ]
    if wrong:
        raise ColumnsDiffer(f"{segment.path} {', '.join(wrong)}")
    return tuple(name for name in types if name not in promised)


def state(manifest: Location) -> list[list[Any]]:
    """Return names, sizes and modification times of a segment's files: equal until somebody
    repairs it."""
    files = sorted(manifest.parent.glob(f"{manifest.name.removesuffix(MANIFEST)}.*"))
    stats = [(file.name, file.stat()) for file in files]
    return [[name, stat.st_size, stat.st_ctime_ns] for name, stat in stats]


def hash_of(path: Location) -> str:
    """Return a file's SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify_file(path: Location, size: int, sha256: str) -> None:
    with _open_verified(path, size, sha256):
        pass


@contextmanager
def _open_verified(path: Location, size: int, sha256: str) -> Iterator[Any]:
    """Open the file, if it has this size and hash."""
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
    """Return a message for each gap that one log's manifests show; see `segment_chain.gaps`."""
    return [
        segment_chain.sentence(gap, segments[0].kind)
        for gap in segment_chain.gaps(segments, begins_after)
    ]


def overlapping(segments: Iterable[SegmentFile]) -> list[SegmentFile]:
    """Return the segments whose names share ids with another segment in their epoch."""
    shared: dict[SegmentFile, None] = {}
    widest: SegmentFile | None = None
    for segment in sorted(segments, key=lambda segment: (segment.epoch, segment.first)):
        follows = widest is not None and segment.epoch == widest.epoch
        if widest is not None and follows and segment.first <= widest.last:
            shared |= {widest: None, segment: None}
        if widest is None or not follows or segment.last > widest.last:
            widest = segment
    return list(shared)


def begins_after(root: Location, kind: str = EVENTS) -> int:
    """Return the newest event that retention removed from a log below `root`; 0 without one."""
    try:
        number = json.loads((root / kind / RETENTION).read_bytes())["begins_after"]
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, KeyError, TypeError):
        number = None
    if type(number) is not int or number < 0:
        raise SegmentTorn(f"{root / kind / RETENTION} is truncated or malformed")
    return number


def epoch_ends(segments: Sequence[SegmentFile]) -> list[EpochEnd]:
    """Return where epochs end: a restore discards the events after the backup."""
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
