"""What crosses the courier's door: envelopes, requests, replies, frames and errors."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from appliance.kernel.errors import (
    ApplianceError,
    Conflict,
    Exhausted,
    Forbidden,
    Invalid,
    Lost,
    Missing,
    Unavailable,
)

VERSION = "v1"
FEATURES = ("credit", "views", "triggers")
BATCH_MAX = 1000

Stream = Annotated[str, Meta(min_length=1, max_length=256)]
EnvelopeId = Annotated[str, Meta(min_length=1, max_length=200)]
Ids = Annotated[list[EnvelopeId], Meta(min_length=1, max_length=BATCH_MAX)]
Named = Annotated[str, Meta(max_length=200)] | Annotated[list[str], Meta(max_length=BATCH_MAX)]
Short = Annotated[str, Meta(min_length=1, max_length=256)]
Priority = Annotated[int, Meta(ge=0, le=9)]
Millis = Annotated[int, Meta(ge=0, le=366 * 86_400_000)]
Limit = Annotated[int, Meta(ge=1, description="clamped to the maximum")]
State = Literal["ready", "delayed", "leased", "dead"]
Mode = Literal["release", "fail", "reject"]


class Envelope(Struct, frozen=True, gc=False, rename={"sender": "from"}):
    """What we read of an envelope; the rest travels through untouched."""

    id: EnvelopeId
    ts: Annotated[str, Meta(min_length=1, max_length=64)]
    type: Short
    payload: msgspec.Raw
    to: Stream | None = None
    sender: Annotated[str, Meta(max_length=256)] | None = None
    tags: list[str] | None = None
    headers: dict[str, Any] | None = None
    partition_key: Annotated[str, Meta(min_length=1, max_length=256)] | None = field(
        default=None, name="partitionKey"
    )
    priority: Priority | None = None
    delay_ms: Millis | None = field(default=None, name="delayMs")
    ttl_ms: Millis | None = field(default=None, name="ttlMs")


# -- requests ------------------------------------------------------------------------


class Enqueue(Struct, frozen=True, gc=False):
    to: Stream
    envelope: msgspec.Raw


class EnqueueBatch(Struct, frozen=True, gc=False):
    to: Stream
    envelopes: Annotated[list[msgspec.Raw], Meta(min_length=1, max_length=BATCH_MAX)]


class Receive(Struct, frozen=True, rename="camel"):
    stream: Stream
    max: Annotated[int, Meta(ge=1)] = 1
    wait: Annotated[float, Meta(ge=0)] = 0.0
    lease_ms: Annotated[int, Meta(ge=1)] | None = None


class Ack(Struct, frozen=True):
    receiver: Short
    ids: Ids


class Nack(Struct, frozen=True, rename="camel"):
    receiver: Short
    ids: Ids
    mode: Mode = "fail"
    delay_ms: Millis | None = None
    error: Annotated[str, Meta(max_length=1000)] = ""


class Extend(Struct, frozen=True, rename="camel"):
    receiver: Short
    ids: Ids
    lease_ms: Annotated[int, Meta(ge=1)] | None = None


class Selection(Struct, frozen=True, rename={"from_": "from", "dry_run": "dryRun"}):
    """Which envelopes of a stream: these ids, or those that match; none named means all."""

    stream: Stream
    ids: list[EnvelopeId] = []
    type: str | None = None
    from_: str | None = None
    tag: str | None = None
    reason: str | None = None
    state: Literal["ready", "delayed", "dead"] | None = None
    rate: Annotated[float, Meta(gt=0)] | None = None
    limit: Limit | None = None
    dry_run: bool = False


class Pause(Struct, frozen=True):
    stream: Stream
    seconds: Annotated[float, Meta(gt=0, le=366 * 86_400)] | None = None
    until: datetime | None = None


class Resume(Struct, frozen=True):
    stream: Stream


class DryRun(Struct, frozen=True):
    to: Stream
    envelope: msgspec.Raw


# -- queries (the part of a URL behind the question mark) --------------------------------


class StatsQuery(Struct, frozen=True):
    stream: Stream | None = None


class PeekQuery(Struct, frozen=True):
    stream: Stream
    state: State | None = None
    limit: Limit = 50
    after: EnvelopeId | None = None


class OneQuery(Struct, frozen=True):
    stream: Stream
    id: EnvelopeId


class ViewQuery(Struct, frozen=True):
    view: Short = "latestPerAgent"
    filter: Short | None = None
    limit: Limit = 1000
    after: (
        Annotated[str, Meta(max_length=600, description="the last addr of the previous page")]
        | None
    ) = None


class LiveQuery(Struct, frozen=True):
    view: Short = "latestPerAgent"
    filter: Short | None = None
    credit: Annotated[int, Meta(ge=0)] | None = None
    snapshot: bool = False


class SubscribeQuery(Struct, frozen=True, rename={"lease_ms": "leaseMs"}):
    stream: Stream
    batch: Annotated[int, Meta(ge=1, le=BATCH_MAX)] = 0
    credit: Annotated[int, Meta(ge=0)] = 0
    lease_ms: Annotated[int, Meta(ge=1)] | None = None
    name: Annotated[str, Meta(max_length=100)] = ""


class PublishQuery(Struct, frozen=True):
    name: Annotated[str, Meta(max_length=100)] = ""


# -- frames of the sockets -----------------------------------------------------------------


class Control(
    Struct,
    frozen=True,
    gc=False,
    forbid_unknown_fields=True,
    rename={"delay_ms": "delayMs", "lease_ms": "leaseMs"},
):
    """What a subscriber says; one frame may say several things."""

    credit: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    ack: Named | UnsetType = UNSET
    nack: Named | UnsetType = UNSET
    extend: Named | UnsetType = UNSET
    mode: Mode = "fail"
    delay_ms: Millis | None = None
    lease_ms: Annotated[int, Meta(ge=1)] | None = None
    error: Annotated[str, Meta(max_length=1000)] = ""


class Publish(Struct, frozen=True, gc=False):
    seq: Annotated[int, Meta(ge=0)]
    to: Stream
    envelope: msgspec.Raw


class Numbered(Struct, frozen=True):
    """Of a frame that is wrong elsewhere: whose refusal it is."""

    seq: int | UnsetType = UNSET


# -- replies -------------------------------------------------------------------------------


class Enqueued(Struct, frozen=True, omit_defaults=True):
    id: str
    boot_id: str
    duplicate: bool = False


class EnqueuedBatch(Struct, frozen=True):
    ids: list[str]
    boot_id: str
    duplicates: int


class StreamStats(Struct, frozen=True, rename="camel"):
    """The specification's seven, and what operators ask for beside them."""

    depth: int
    inflight: int
    rate_in: float
    rate_out: float
    lat_p50: float
    lat_p95: float
    last_ts: str | None
    ready: int
    delayed: int
    dead: int
    bytes: int
    oldest_ready_ms: float
    subscribers: int
    credit: int
    paused: bool
    paused_until: str | None
    durable: bool
    enqueued: int
    delivered: int
    acked: int
    nacked: int
    redelivered: int
    duplicates: int
    dropped: dict[str, int]
    boot_id: str = field(name="boot_id")


class NamedStats(Struct, frozen=True):
    id: str
    stats: StreamStats


class AllStats(Struct, frozen=True):
    streams: list[NamedStats]
    boot_id: str


class Received(Struct, frozen=True):
    receiver: str
    deliveries: list[Any]
    boot_id: str


class Settled(Struct, frozen=True):
    done: list[str]
    lost: list[str]
    boot_id: str


class Try(Struct, frozen=True, omit_defaults=True):
    """A delivery that failed: when, in whose hands, how (failed, rejected, lease_expired)."""

    at: str
    holder: str
    outcome: str
    error: str = ""


class Kept(Struct, frozen=True, rename="camel", omit_defaults=True):
    """An envelope and where it stands."""

    id: str
    state: str
    envelope: msgspec.Raw
    enqueued_at: str
    attempts: int
    priority: int
    failures: int = 0
    partition_key: str | None = None
    due_at: str | None = None
    expires_at: str | None = None
    holder: str | None = None
    reason: str | None = None
    error: str | None = None
    dead_at: str | None = None
    stream: str | None = None
    history: list[Try] = []


class Listing(Struct, frozen=True):
    envelopes: list[Kept]
    has_more: bool
    boot_id: str


class Changed(Struct, frozen=True, rename={"dry_run": "dryRun"}):
    count: int
    ids: list[str]
    dry_run: bool
    boot_id: str
    remaining: int = 0


class Row(Struct, frozen=True):
    addr: str
    env: Any


class Snapshot(Struct, frozen=True):
    view: str
    rows: list[Row]
    has_more: bool
    watermark: int
    boot_id: str


class Paused(Struct, frozen=True):
    stream: str
    paused: bool
    until: str | None
    boot_id: str


# -- errors ----------------------------------------------------------------------------------


class InvalidEnvelope(Invalid):
    code = "INVALID_ENVELOPE"
    sentence = "the envelope is not valid"
    advice = "an envelope needs id, ts, type and payload; see docs/courier.md"


class NoSuchStream(Missing):
    code = "UNKNOWN_STREAM"
    sentence = "unknown stream"
    advice = "agentlip courier stats"


class NoSuchView(Missing):
    code = "UNKNOWN_VIEW"
    sentence = "unknown view"
    advice = "the views are latestPerAgent and inflight"


class NoSuchEnvelope(Missing):
    sentence = "the stream holds no envelope of that id"
    advice = "agentlip courier peek STREAM"


class NotHeld(Lost):
    code = "LEASE_LOST"
    sentence = "no lease of yours on this envelope: acked before, expired, or somebody else's"
    advice = "nothing to do: it is done, or will be delivered again"


class StreamFull(Exhausted):
    code = "STREAM_FULL"
    sentence = "the stream is full"
    advice = "send more slowly, or let more consumers in; agentlip courier stats"


class MemoryFull(Exhausted):
    code = "COURIER_FULL"
    sentence = "the streams together hold as many bytes as they may"
    advice = "drain or purge a stream, or raise courier.bytes_total_max"


class TooManyStreams(Exhausted):
    code = "TOO_MANY_STREAMS"
    sentence = "there are as many streams as there may be"
    advice = "use fewer names, or raise courier.streams_max"


class TooFast(Exhausted):
    sentence = "envelopes come faster than this token or stream allows"
    advice = "wait for retry_after seconds; see courier.rate_per_token and rate_per_stream"


class TooManyWaiting(Unavailable):
    code = "TOO_MANY_WAITING"
    sentence = "too many clients are waiting"
    advice = "use a WebSocket, or raise courier.waiting_max"


class TooMuchCredit(Invalid):
    code = "CREDIT_TOO_HIGH"
    sentence = "that would be more credit than one subscriber may have"
    advice = "grant less; the limit is courier.credit_max"


class StreamRefused(Forbidden):
    sentence = "this token may not do that with this stream"
    advice = "a token needs a scope like streams:<pattern>:enqueue"


class StillLeased(Conflict):
    code = "LEASED"
    sentence = "the envelope is in somebody's hands"
    advice = "wait for its ack or the end of its lease"


def problem(error: ApplianceError, **more: Any) -> dict[str, Any]:
    """What an error frame says: the specification's `{code, message}`, and what helps."""
    said: dict[str, Any] = {
        "code": error.status or STATUS_OF_KIND.get(error.kind, 500),
        "message": error.message,
        "name": error.code,
    }
    if error.details.get("field"):
        said["field"] = error.details["field"]
    if error.retry_after is not None:
        said["retry_after"] = error.retry_after
    if error.hint:
        said["hint"] = error.hint
    return {**said, **more}


STATUS_OF_KIND = {
    "invalid": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "missing": 404,
    "conflict": 409,
    "lost": 409,
    "exhausted": 429,
    "unavailable": 503,
}
