"""What crosses the door about segments: manifests, listings, errors."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from appliance.kernel.errors import Invalid, Missing, Unavailable
from appliance.kernel.scopes import Scopes

READ = "export:read"
SCOPES = Scopes(frozenset({READ}))
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
    """A segment as the listing tells it: its manifest, with `name`, which is what to download."""

    name: str
    kind: str
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
    workspace_id: str | None
    replaces: tuple[str, ...]


class SegmentList(Struct, frozen=True):
    """`next` is the cursor for `after`; take of each segment the events above your own."""

    segments: list[Segment]
    next: int
    has_more: bool


class SegmentsQuery(Struct, frozen=True):
    after: Count = 0
    limit: Annotated[int, Meta(ge=1)] = 100


class Snapshot(Struct, frozen=True):
    """The tables as they were at one event; `files` tells a file for each table."""

    name: str
    kind: str
    epoch: str
    as_of_event_id: int
    format: str
    schema_version: int
    created_at: str
    workspace_id: str | None
    files: dict[str, SnapshotFile]


class SnapshotList(Struct, frozen=True):
    """Newest first. While `has_more` is true, the list continues with `after` set to `next`."""

    snapshots: list[Snapshot]
    has_more: bool = False
    next: str | None = None


class SnapshotsQuery(Struct, frozen=True):
    """`after`: `next` of the page before."""

    limit: Annotated[int, Meta(ge=1)] = 10
    after: Annotated[str, Meta(pattern=r"^[0-9]{1,19}:[^/]{1,255}$")] | None = None


class SnapshotNotFound(Missing):
    code = "SNAPSHOT_NOT_FOUND"
    sentence = "there is no such snapshot, or no such file in it"
    advice = "GET /api/v1/snapshots lists them; older ones are removed when new ones are taken"


class SegmentNotFound(Missing):
    code = "SEGMENT_NOT_FOUND"
    sentence = "there is no such segment"
    advice = "GET /api/v1/segments lists them; a replaced one is removed after a while"


class RangeNotSatisfiable(Invalid):
    code = "RANGE_NOT_SATISFIABLE"
    status = 416
    sentence = "that range lies outside the segment"
    advice = "its size is in the listing, and in Content-Range of this answer"


class SegmentsDamaged(Unavailable):
    code = "SEGMENTS_DAMAGED"
    sentence = "what lies in the export's directory is damaged"
    advice = "agentlip export verify DIR names all that is wrong"


class ActivityQuery(Struct, frozen=True, rename={"first": "from", "last": "to"}):
    """Days in UTC, both included; left out: all there are."""

    first: Date | None = None
    last: Date | None = None
    channel: Annotated[str, Meta(max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")] | None = None
    top: Annotated[int, Meta(ge=1)] = 20


class Activity(Struct, frozen=True):
    """What was done by one sender, in one topic, on one day, …

    reply_seconds: until somebody else answered: the median of the days' medians, each counted
    by its replies; None where nobody did.
    """

    key: str
    name: str
    messages: int = 0
    edits: int = 0
    deletes: int = 0
    moves: int = 0
    replied: int = 0
    reply_seconds: float | None = None
    active_seconds: float = 0.0


class Pair(Struct, frozen=True):
    sender: str
    answers: str
    replies: int
    median_seconds: float | None


class ActivityReport(Struct, frozen=True):
    """`days` are complete; of the others the busiest `top`, `left_out` says how many follow."""

    first: str
    last: str
    channel: str | None
    total: Activity
    days: list[Activity]
    channels: list[Activity]
    topics: list[Activity]
    senders: list[Activity]
    pairs: list[Pair]
    left_out: dict[str, int]


class NothingInRange(Missing):
    code = "EMPTY_RANGE"
    sentence = "nothing happened in that range, or no job has counted it yet"
    advice = "ask for other days, or run the activity job for them"


class ReportUnavailable(Unavailable):
    code = "REPORT_UNAVAILABLE"
    sentence = "there is no report to be read"
    advice = "run the activity job into jobs.gold_dir; agentlip report activity says what is wrong"
