"""What crosses the door about segments: manifests, listings, errors and their exit codes."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct

from appliance.kernel.errors import ApplianceError, Conflict, Invalid, Missing, Unavailable

SCHEMA_VERSION = 1
Count = Annotated[int, Meta(ge=0)]
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
FileName = Annotated[str, Meta(min_length=1, max_length=200, pattern="^[A-Za-z0-9._-]+$")]
Date = Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}$")]


class Manifest(Struct, frozen=True, kw_only=True):
    """What is said of a segment. A segment without one does not exist for a reader.

    previous_event_id  the newest event of the log before the first of these, 0 at its begin;
                       so segments form a chain, in which a missing one shows
    replaces           stems of segments that hold the same events; a reader leaves those out
    """

    schema_version: int
    kind: str
    epoch: str
    first_event_id: Annotated[int, Meta(ge=1)]
    last_event_id: Annotated[int, Meta(ge=1)]
    previous_event_id: Count = 0
    rows: Annotated[int, Meta(ge=1)]
    file: FileName
    format: Literal["parquet", "jsonl"]
    bytes: Count
    sha256: Digest
    created_at: str
    date: Date
    workspace_id: str | None = None
    replaces: tuple[str, ...] = ()


class SnapshotFile(Struct, frozen=True):
    file: FileName
    rows: Count
    bytes: Count
    sha256: Digest


class SnapshotManifest(Struct, frozen=True, kw_only=True):
    """What is said of a snapshot: the tables as they were when that event was the newest."""

    schema_version: int
    kind: str
    epoch: str
    as_of_event_id: Count
    format: Literal["parquet", "jsonl"]
    created_at: str
    workspace_id: str | None = None
    files: dict[str, SnapshotFile]


class Segment(Struct, frozen=True):
    """A segment as the listing tells it. `name` is what to download."""

    name: str
    epoch: str
    date: str
    first_event_id: int
    last_event_id: int
    previous_event_id: int
    rows: int
    bytes: int
    format: str
    sha256: str
    schema_version: int
    created_at: str


class SegmentList(Struct, frozen=True):
    """`next` is the cursor for `after`; take of each segment the events above your own."""

    segments: list[Segment]
    next: int
    has_more: bool


class SegmentsQuery(Struct, frozen=True):
    after: Count = 0
    limit: Annotated[int, Meta(ge=1)] = 100


class ExportError(ApplianceError):
    """`exit_code` tells a script which of them it was."""

    exit_code: ClassVar[int]


class SegmentMissing(Missing, ExportError):
    code = "SEGMENT_MISSING"
    sentence = "a manifest speaks of a segment that is not there"
    advice = "agentlip export verify DIR names all that is wrong"
    exit_code = 10


class SegmentTorn(Invalid, ExportError):
    code = "SEGMENT_TORN"
    sentence = "a segment or its manifest is cut off or malformed"
    advice = "agentlip export verify DIR names all that is wrong"
    exit_code = 11


class WrongHash(Invalid, ExportError):
    code = "WRONG_HASH"
    sentence = "a segment holds other bytes than its manifest says"
    advice = "take the segment from a copy, or remove it with its manifest and export anew"
    exit_code = 12


class SchemaVersionUnknown(Invalid, ExportError):
    code = "SCHEMA_VERSION_UNKNOWN"
    sentence = "a manifest has a schema version that this program does not know"
    advice = "a newer agentlip wrote it: use that one, or another directory"
    exit_code = 13


class EmptyRange(Missing, ExportError):
    code = "EMPTY_RANGE"
    sentence = "there is nothing in that range"
    advice = "ask for other dates, or run the job that makes them"
    exit_code = 14


class OutputNotWritable(Unavailable, ExportError):
    code = "OUTPUT_NOT_WRITABLE"
    sentence = "the output can't be written"
    advice = "look at owner and free space: ls -ld DIR; df -h DIR"
    exit_code = 15


class OutputBusy(Conflict, ExportError):
    code = "EXPORT_RUNNING"
    sentence = "another export writes into that directory"
    advice = "wait for it, or name another directory with --out"
    exit_code = 16


class OtherHistory(Conflict, ExportError):
    code = "OTHER_HISTORY"
    sentence = "that directory holds the log of another workspace, or a longer one"
    advice = "name another directory with --out"
    exit_code = 17


class LibraryMissing(Unavailable, ExportError):
    code = "LIBRARY_MISSING"
    sentence = "this needs a library that is not installed"
    advice = "pip install 'agentlip[export]', or --format jsonl"
    exit_code = 18


class BadEvent(Invalid, ExportError):
    code = "BAD_EVENT"
    sentence = "an event can't be exported"
    advice = "agentlip doctor --run events.sequence,events.scope"
    exit_code = 19


class SegmentNotFound(Missing):
    code = "SEGMENT_NOT_FOUND"
    sentence = "there is no such segment"
    advice = "GET /api/v1/segments lists them; a replaced one is removed after a while"


class RangeNotSatisfiable(Invalid):
    code = "RANGE_NOT_SATISFIABLE"
    status = 416
    sentence = "that range lies outside the segment"
    advice = "its size is in the listing, and in Content-Range of this answer"
