"""Structs of reports, over HTTP and with `--json`."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from appliance.export.wire import Date

LogKind = Literal["outbox", "broker", "courier", "runs"]


class ActivityQuery(Struct, frozen=True, rename={"first": "from", "last": "to"}):
    """Days in UTC, inclusive; without them all days."""

    first: Date | None = None
    last: Date | None = None
    channel: Annotated[str, Meta(max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")] | None = None
    top: Annotated[int, Meta(ge=1)] = 20


class Activity(Struct, frozen=True):
    """The activity of one sender, topic, channel or day.

    replied: messages that another sender followed in the topic within a day.
    reply_seconds, reply_p95_seconds: time until another sender followed, as the median and the
    95th percentile of the `replied` messages, within `quantile_error`; None if there are none.
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
    """Messages of `sender` that followed a message of `answers` in the topic within a day."""

    sender: str
    answers: str
    replies: int
    median_seconds: float | None
    p95_seconds: float | None = None


class ActivityReport(Struct, frozen=True):
    """`days` are complete; other lists have the `top` busiest. `left_out` counts the rest.

    quantile_error: the relative error of medians and percentiles, such as 0.01 for 1 %.
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
    """Days in UTC, inclusive; without them all days. `log` limits the report to one log."""

    first: Date | None = None
    last: Date | None = None
    log: LogKind | None = None
    top: Annotated[int, Meta(ge=1)] = 100


class StageLatency(Struct, frozen=True):
    """How long a stage took. Percentiles are within `quantile_error`.

    stage: accept_to_deliver, deliver_to_ack or accept_to_ack.
    objective_seconds: the objective of the newest day.
    attainment: the share of `count` that met the objective of its day, 0 to 1.
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
    """What happened to the messages of a destination; estimated if its stream is sampled.

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
    """Each list has at most `top` rows, those with the highest counts; `left_out` counts the rest.

    quantile_error: the relative error of percentiles, such as 0.01 for 1 %.
    """

    first: str
    last: str
    log: str | None
    latency: list[StageLatency]
    outcomes: list[DestinationOutcome]
    dead_letters: list[DeadLetterCause]
    left_out: dict[str, int]
    quantile_error: float
