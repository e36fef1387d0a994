"""The courier's wire format: envelopes, requests, replies, frames and errors."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from appliance.kernel.clock import DAY_MS
from appliance.kernel.errors import (
    ApplianceError,
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

StreamName = Annotated[str, Meta(min_length=1, max_length=256)]
EnvelopeId = Annotated[str, Meta(min_length=1, max_length=200)]
Ids = Annotated[list[EnvelopeId], Meta(min_length=1, max_length=BATCH_MAX)]
IdOrIds = Annotated[str, Meta(max_length=200)] | Annotated[list[str], Meta(max_length=BATCH_MAX)]
Short = Annotated[str, Meta(min_length=1, max_length=256)]
Priority = Annotated[int, Meta(ge=0, le=9)]
Millis = Annotated[int, Meta(ge=0, le=366 * DAY_MS)]
Limit = Annotated[int, Meta(ge=1, description="clamped to the maximum")]
State = Literal["ready", "delayed", "leased", "dead"]
Mode = Literal["release", "fail", "reject"]


class Envelope(Struct, frozen=True, gc=False, rename={"sender": "from"}):
    """The envelope fields that the courier reads. All others are passed on unchanged."""

    id: EnvelopeId
    ts: Annotated[str, Meta(min_length=1, max_length=64)]
    type: Short
    payload: msgspec.Raw
    to: StreamName | None = None
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
    to: StreamName
    envelope: msgspec.Raw


class EnqueueBatch(Struct, frozen=True, gc=False):
    to: StreamName
    envelopes: Annotated[list[msgspec.Raw], Meta(min_length=1, max_length=BATCH_MAX)]


class ReceiveRequest(Struct, frozen=True, rename="camel"):
    stream: StreamName
    max: Annotated[int, Meta(ge=1)] = 1
    wait: Annotated[float, Meta(ge=0)] = 0.0
    lease_ms: Annotated[int, Meta(ge=1)] | None = None


class AckRequest(Struct, frozen=True):
    receiver: Short
    ids: Ids


class NackRequest(Struct, frozen=True, rename="camel"):
    receiver: Short
    ids: Ids
    mode: Mode = "fail"
    delay_ms: Millis | None = None
    error: Annotated[str, Meta(max_length=1000)] = ""


class ExtendRequest(Struct, frozen=True, rename="camel"):
    receiver: Short
    ids: Ids
    lease_ms: Annotated[int, Meta(ge=1)] | None = None


class Selection(
    Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from", "dry_run": "dryRun"}
):
    """One stream's envelopes that match every given condition; without any, all. So an unknown
    condition is refused."""

    stream: StreamName
    ids: list[EnvelopeId] = []
    type: str | None = None
    from_: str | None = None
    tag: str | None = None
    reason: str | None = None
    state: Literal["ready", "delayed", "dead"] | None = None
    limit: Limit | None = None
    dry_run: bool = False


class Pause(Struct, frozen=True, forbid_unknown_fields=True):
    stream: StreamName
    seconds: Annotated[float, Meta(gt=0, le=366 * 86_400)] | None = None


class Resume(Struct, frozen=True):
    stream: StreamName


# -- query parameters ---------------------------------------------------------------------


class StatsQuery(Struct, frozen=True):
    stream: StreamName | None = None


class PeekQuery(Struct, frozen=True):
    stream: StreamName
    state: State | None = None
    limit: Limit = 50
    after: EnvelopeId | None = None


class EnvelopeQuery(Struct, frozen=True):
    stream: StreamName
    id: EnvelopeId


class ViewQuery(Struct, frozen=True):
    # Together the addresses fit into a request line, whatever the characters: four bytes are twelve
    # in a URL. An address is a stream, `#`, and an id.
    view: Annotated[str, Meta(min_length=1, max_length=64)] = "latestPerAgent"
    filter: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    limit: Limit = 1000
    after: (
        Annotated[str, Meta(max_length=457, description="the last addr from the previous page")]
        | None
    ) = None


class LiveQuery(Struct, frozen=True):
    view: Short = "latestPerAgent"
    filter: Short | None = None
    credit: Annotated[int, Meta(ge=0)] | None = None
    snapshot: bool = False


class SubscribeQuery(Struct, frozen=True, rename={"lease_ms": "leaseMs"}):
    stream: StreamName
    batch: Annotated[int, Meta(ge=1, le=BATCH_MAX)] = 0
    credit: Annotated[int, Meta(ge=0)] = 0
    lease_ms: Annotated[int, Meta(ge=1)] | None = None
    name: Annotated[str, Meta(max_length=100)] = ""


class PublishQuery(Struct, frozen=True):
    name: Annotated[str, Meta(max_length=100)] = ""


# -- socket frames -------------------------------------------------------------------------


class ConsumerFrame(
    Struct,
    frozen=True,
    gc=False,
    forbid_unknown_fields=True,
    rename={"delay_ms": "delayMs", "lease_ms": "leaseMs"},
):
    """A frame that a consumer sends, with one or more operations."""

    credit: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    ack: IdOrIds | UnsetType = UNSET
    nack: IdOrIds | UnsetType = UNSET
    extend: IdOrIds | UnsetType = UNSET
    mode: Mode | None = None
    delay_ms: Millis | None = None
    lease_ms: Annotated[int, Meta(ge=1)] | None = None
    error: Annotated[str, Meta(max_length=1000)] = ""


class PublishFrame(Struct, frozen=True, gc=False):
    seq: Annotated[int, Meta(ge=0)]
    to: StreamName
    envelope: msgspec.Raw


class SequenceOnly(Struct, frozen=True):
    """A frame's number, whose other fields are invalid."""

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


class StreamStatsReply(Struct, frozen=True, rename="camel"):
    """The specification's seven fields, and more for operators."""

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
    stats: StreamStatsReply


class AllStats(Struct, frozen=True):
    streams: list[NamedStats]
    boot_id: str


class Received(Struct, frozen=True):
    receiver: str
    deliveries: list[Any]
    boot_id: str


class LeaseResult(Struct, frozen=True):
    done: list[str]
    lost: list[str]
    boot_id: str


class FailedDelivery(Struct, frozen=True, omit_defaults=True):
    """A failed attempt. `outcome` is failed, rejected or lease_expired."""

    at: str
    consumer: str = field(name="holder")
    outcome: str
    error: str = ""


class EnvelopeDetails(Struct, frozen=True, rename="camel", omit_defaults=True):
    """An envelope and its state. `consumer` has the lease."""

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
    consumer: str | None = field(default=None, name="holder")
    reason: str | None = None
    error: str | None = None
    dead_at: str | None = None
    stream: str | None = None
    history: list[FailedDelivery] = []


class EnvelopePage(Struct, frozen=True):
    envelopes: list[EnvelopeDetails]
    has_more: bool
    boot_id: str


class SelectionResult(Struct, frozen=True, rename={"dry_run": "dryRun"}):
    count: int
    ids: list[str]
    dry_run: bool
    boot_id: str
    remaining: int = 0


class ViewRow(Struct, frozen=True):
    addr: str
    env: Any


class ViewSnapshot(Struct, frozen=True):
    view: str
    rows: list[ViewRow]
    has_more: bool
    version: int = field(name="watermark")
    boot_id: str


class Paused(Struct, frozen=True):
    stream: str
    paused: bool
    until: str | None
    boot_id: str


# -- errors ----------------------------------------------------------------------------------


class InvalidEnvelope(Invalid):
    code = "INVALID_ENVELOPE"
    default_message = "the envelope is not valid"
    default_hint = "an envelope needs id, ts, type and payload; see docs/reference/courier.md"


class NoSuchStream(Missing):
    code = "UNKNOWN_STREAM"
    default_message = "unknown stream"
    default_hint = "agentlip courier stats"


class NoSuchView(Missing):
    code = "UNKNOWN_VIEW"
    default_message = "unknown view"
    default_hint = "the view is latestPerAgent"


class NoSuchEnvelope(Missing):
    default_message = "no envelope with that id in the stream"
    default_hint = "agentlip courier peek STREAM"


class LeaseLost(Lost):
    code = "LEASE_LOST"
    default_message = "lease lost: it expired, has ended, or belongs to another consumer"
    default_hint = "do nothing: the envelope was acked or will be delivered again"


class StreamFull(Exhausted):
    code = "STREAM_FULL"
    default_message = "the stream is full"
    default_hint = "send more slowly, add consumers, or raise courier.depth_max"


class MemoryFull(Exhausted):
    code = "COURIER_FULL"
    default_message = "courier memory limit reached (courier.bytes_total_max)"
    default_hint = "drain or purge a stream, or raise courier.bytes_total_max"


class StreamLimitReached(Exhausted):
    code = "TOO_MANY_STREAMS"
    default_message = "the limit for streams has been reached"
    default_hint = "use fewer names: agentlip courier stats lists the streams"


class RateExceeded(Exhausted):
    default_message = "rate limit for this token or stream exceeded"
    default_hint = (
        "wait for retry_after seconds, or raise courier.rate_per_token and rate_per_stream"
    )


class WaitLimitReached(Unavailable):
    code = "TOO_MANY_WAITING"
    default_message = "too many clients are waiting"
    default_hint = "use a WebSocket"


class CreditTooHigh(Invalid):
    code = "CREDIT_TOO_HIGH"
    default_message = "credit above the limit for one consumer"
    default_hint = "grant less credit"


class StreamRefused(Forbidden):
    default_message = "the token lacks a scope for this stream or view"
    default_hint = "use a token with the scope in details, such as streams:<pattern>:enqueue"


def error_body(error: ApplianceError, **more: Any) -> dict[str, Any]:
    """Return an error frame's content: the specification's `code` and `message`, and more."""
    body: dict[str, Any] = {"code": error.status, "message": error.message, "name": error.code}
    if error.details.get("field"):
        body["field"] = error.details["field"]
    if error.retry_after is not None:
        body["retry_after"] = error.retry_after
    if error.hint:
        body["hint"] = error.hint
    return {**body, **more}
