"""Defines the structs and errors for the HTTP API and the manifests."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from appliance.kernel.errors import Missing, Unavailable
from appliance.kernel.scopes import Scopes
from appliance.shared.exported_logs import LogKind

READ = "export:read"
DELIVERY = "export:delivery"
"""The delivery logs: senders, recipients, times and results, without bodies."""
SCOPES = Scopes(frozenset({READ, DELIVERY}))
SCHEMA_VERSION = 1
Count = Annotated[int, Meta(ge=0)]
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
FileName = Annotated[str, Meta(min_length=1, max_length=200, pattern="^[A-Za-z0-9._-]+$")]
Date = Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}$")]


class SegmentManifest(Struct, frozen=True, kw_only=True):
    """A segment's manifest. Readers ignore segments without a manifest.

    previous_event_id  the newest event before the segment's first event, or 0. Segments form a
                       chain, so a missing segment is detected
    replaces           stems of older segments with identical events, which readers ignore
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

    @property
    def first(self) -> int:
        return self.first_event_id

    @property
    def last(self) -> int:
        return self.last_event_id

    @property
    def previous(self) -> int:
        return self.previous_event_id


class SnapshotFile(Struct, frozen=True):
    file: FileName
    rows: Count
    bytes: Count
    sha256: Digest


class SnapshotManifest(Struct, frozen=True, kw_only=True):
    """A snapshot's manifest: the tables as of event `as_of_event_id`."""

    schema_version: int
    kind: str
    epoch: str
    as_of_event_id: Count
    format: Literal["parquet", "jsonl"]
    created_at: str
    workspace_id: str | None = None
    files: dict[str, SnapshotFile]


class Segment(SegmentManifest, frozen=True, kw_only=True):
    """A segment in a list: the manifest with all fields, and `name` for the download."""

    name: str
    previous_event_id: int
    workspace_id: str | None
    replaces: tuple[str, ...]


class SegmentList(Struct, frozen=True):
    """A list of segments. `next` is the value for `after`. Ignore events that are not above your
    cursor. Retention removed the events up to `begins_after`."""

    segments: list[Segment]
    next: int
    has_more: bool
    begins_after: int = 0


class SegmentsQuery(Struct, frozen=True):
    after: Count = 0
    limit: Annotated[int, Meta(ge=1)] = 100
    log: LogKind = "events"


class SegmentQuery(Struct, frozen=True):
    log: LogKind = "events"


class Snapshot(SnapshotManifest, frozen=True, kw_only=True):
    """The tables as of one event; `files` has a file for each table."""

    name: str
    workspace_id: str | None


class SnapshotList(Struct, frozen=True):
    """Newest first. While `has_more` is true, continue with `after` set to `next`."""

    snapshots: list[Snapshot]
    has_more: bool = False
    next: str | None = None


class SnapshotsQuery(Struct, frozen=True):
    """Selects a page. `after` is the previous page's `next`."""

    limit: Annotated[int, Meta(ge=1)] = 10
    after: Annotated[str, Meta(pattern=r"^[0-9]{1,19}:[^/]{1,255}$")] | None = None


class SnapshotNotFound(Missing):
    code = "SNAPSHOT_NOT_FOUND"
    default_message = "snapshot or file not found"
    default_hint = (
        "GET /api/v1/snapshots lists them; older ones are removed when new ones are taken"
    )


class SegmentNotFound(Missing):
    code = "SEGMENT_NOT_FOUND"
    default_message = "segment not found"
    default_hint = "GET /api/v1/segments lists them; a replaced one is removed after a while"


class SegmentsDamaged(Unavailable):
    code = "SEGMENTS_DAMAGED"
    default_message = "the export directory contains damaged files"
    default_hint = "run agentlip export verify DIR to list all problems"


class NothingInRange(Missing):
    code = "EMPTY_RANGE"
    default_message = "the range has no activity, or the job has not processed it yet"
    default_hint = "use other days, or run the report's job for these days"


class ReportUnavailable(Unavailable):
    code = "REPORT_UNAVAILABLE"
    default_message = "the report cannot be read"
    default_hint = "run the job into export.gold_dir; agentlip report activity shows the error"
