"""Defines the report structs, for HTTP and `--json`."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from appliance.export.wire import Date

LogKind = Literal["outbox", "broker", "courier", "runs"]


class ActivityQuery(Struct, frozen=True, rename={"first": "from", "last": "to"}):
    """Selects days in UTC, inclusive; without limits all days."""

    first: Date | None = None
    last: Date | None = None
    channel: Annotated[str, Meta(max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")] | None = None
    top: Annotated[int, Meta(ge=1)] = 20


class Activity(Struct, frozen=True):
    """One sender's, topic's, channel's or day's activity.

    replied: messages that another sender followed in the topic within a day. reply_seconds,
    reply_p95_seconds: time until another sender followed, as the median and the 95th percentile
    over the `replied` messages, within `quantile_error`; None if `replied` is 0.
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
    reply_p95_seconds: float | None = None


class Pair(Struct, frozen=True):
    """Messages from `sender` that followed an `answers` message in the topic within a day."""

    sender: str
    answers: str
    replies: int
    median_seconds: float | None
    p95_seconds: float | None = None


class ActivityReport(Struct, frozen=True):
    """`days` are complete; the remaining lists have the `top` busiest. `left_out` counts the
    rest.

    quantile_error: the relative error for medians and percentiles, such as 0.01 for 1 %.
    """

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
    quantile_error: float


class DeliveryQuery(Struct, frozen=True, rename={"first": "from", "last": "to"}):
    """Selects days in UTC, inclusive; without limits all days. `log` limits the report to one
    log."""

    first: Date | None = None
    last: Date | None = None
    log: LogKind | None = None
    top: Annotated[int, Meta(ge=1)] = 100


class StageLatency(Struct, frozen=True):
    """One stage's durations. Percentiles are within `quantile_error`.

    stage: accept_to_deliver, deliver_to_ack or accept_to_ack. objective_seconds: the newest day's
    objective. attainment: the share of `count` that met the day's objective, 0 to 1.
    """

    log: str
    destination: str
    stage: str
    count: int
    p50_seconds: float | None
    p95_seconds: float | None
    p99_seconds: float | None
    objective_seconds: float
    within_objective: int
    attainment: float


class DestinationOutcome(Struct, frozen=True):
    """The outcomes for one destination's messages; estimated if the stream is sampled.

    delivered: first deliveries. attempts: all deliveries and attempts. `dead`: given up.
    """

    log: str
    destination: str
    accepted: int
    delivered: int
    acked: int
    attempts: int
    failed: int
    dead: int


class DeadLetterCause(Struct, frozen=True):
    """Messages that were given up for one cause. `example` is the newest error."""

    log: str
    destination: str
    cause: str
    count: int
    example: str | None


class DeliveryReport(Struct, frozen=True):
    """Each list has at most `top` rows, the ones with the highest counts; `left_out` counts the
    rest.

    quantile_error: the relative error for percentiles, such as 0.01 for 1 %.
    """

    first: str
    last: str
    log: str | None
    latency: list[StageLatency]
    outcomes: list[DestinationOutcome]
    dead_letters: list[DeadLetterCause]
    left_out: dict[str, int]
    quantile_error: float
