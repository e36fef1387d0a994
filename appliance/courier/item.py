"""One envelope in one stream, and its state. Pure."""

from typing import Any, NamedTuple

import msgspec

from appliance.courier.lease import READY

DELAYED, GONE = "delayed", "gone"  # in addition to the states in `courier/lease.py`
DEFAULT_PRIORITY = 4
FOREVER = float("inf")


class FailedAttempt(NamedTuple):
    """An attempt in an envelope's history; `at` is on the monotonic clock."""

    at: float
    consumer: str
    outcome: str
    error: str


class StreamItem:
    """An accepted envelope: small and without behaviour, because there can be millions.

    order         its position in the stream; a new one whenever it goes to the tail
    at            when it was accepted; `since`: when it last became ready, or died
    attempts      deliveries that count; `failures`: those that ended with `fail`
    delivered     all deliveries
    timer_id      id of its timer in the heap of `Timers`; 0 without one
    deadline      when that timer or its lease ends
    lease_bucket  the bucket of `Timers` that contains its lease
    row           its row in the journal of a durable stream
    history       the latest failed attempts
    """

    __slots__ = (
        "at", "attempts", "body", "consumer", "deadline", "delivered", "error", "expires",
        "expiry", "failures", "history", "id", "key", "lease_bucket", "leased_at", "order",
        "priority", "reason", "row", "since", "state", "stream", "timer_id",
    )  # fmt: skip

    leased_at: float
    reason: str

    def __init__(self, stream: Any, id_: str, body: bytes, order: int, at: float) -> None:
        self.stream = stream
        self.id = id_
        self.body = body
        self.order = order
        self.at = self.since = at
        self.state = READY
        self.priority = DEFAULT_PRIORITY
        self.key: str | None = None
        self.attempts = self.failures = self.delivered = self.timer_id = self.row = 0
        self.error = ""
        self.history: list[FailedAttempt] | None = None
        self.expires = FOREVER
        self.expiry: Expiry | None = None
        self.consumer: Any = None
        self.lease_bucket: dict[Any, None] | None = None
        self.deadline = 0.0

    def __lt__(self, other: "StreamItem") -> bool:
        return self.order < other.order


class Expiry:
    """The timer for an envelope's time to live."""

    __slots__ = ("deadline", "item", "timer_id")

    def __init__(self, item: StreamItem) -> None:
        self.item = item
        self.timer_id = 0
        self.deadline = 0.0


class DeliveryOptions(msgspec.Struct, frozen=True, gc=False):
    """An envelope's options."""

    priority: int = DEFAULT_PRIORITY
    key: str | None = None
    delay_ms: int = 0
    ttl_ms: int = 0
