"""Consumers, and their subscriptions to streams. Pure."""

from collections.abc import Callable

from appliance.courier.item import StreamItem
from appliance.courier.stream import Stream

FAIRNESS_WAIT_MS = 5.0  # how long dispatch waits for a consumer that usually grants credit quickly
PAST_WEIGHT = 0.8  # earlier measurements' weight in `turnaround_ms`


class Consumer:
    """A client that receives: a socket, or one `POST /v1/receive`.

    inflight       leased envelopes by id; one whose id is taken is stored as `id NUL stream`
    same_id_items  leased envelopes whose id was already in `inflight`, from another stream
    outgoing       envelopes that are leased, but not written to the client yet
    glob           the pattern it subscribed to; None if it named one stream
    turnaround_ms  average time from running out of credit to granting more
    wait_until     dispatch waits for more credit until then
    """

    __slots__ = (
        "_exhausted_at", "credit", "glob", "id", "inflight", "lease_ms", "name",
        "next_subscription", "outgoing", "same_id_items", "subscriptions", "turnaround_ms",
        "wait_until", "wake",
    )  # fmt: skip

    def __init__(
        self, id_: str, name: str, wake: Callable[[], None], lease_ms: int | None = None
    ) -> None:
        self.id = id_
        self.name = name
        self.wake = wake
        self.lease_ms = lease_ms
        self.glob: str | None = None
        self.credit = 0
        self.inflight: dict[str, StreamItem] = {}
        self.same_id_items: dict[str, list[StreamItem]] = {}
        self.outgoing: list[StreamItem] = []
        self.subscriptions: list[StreamSubscription] = []
        self.next_subscription = 0
        self.turnaround_ms = 0.0
        self.wait_until = 0.0
        self._exhausted_at: float | None = None

    def grant(self, credit: int, now: float) -> None:
        self.credit += credit
        if credit and self._exhausted_at is not None:
            elapsed = min(now - self._exhausted_at, 100 * FAIRNESS_WAIT_MS)
            self.turnaround_ms = PAST_WEIGHT * self.turnaround_ms + (1 - PAST_WEIGHT) * elapsed
            self._exhausted_at = None

    def spend(self, credit: int, now: float) -> None:
        self.credit -= credit
        if self.credit == 0:
            self._exhausted_at = now
            is_quick = self.turnaround_ms <= FAIRNESS_WAIT_MS
            self.wait_until = now + FAIRNESS_WAIT_MS if is_quick else 0.0

    def find(self, id_: str) -> StreamItem | None:
        """Return the leased envelope with this id; the first one if different streams have it."""
        item = self.inflight.get(id_)
        if item is None and id_ in self.same_id_items:
            item = self.same_id_items[id_][0]
        return item


class StreamSubscription:
    """One consumer at one stream.

    served    envelopes delivered to it; `fair_dispatch` compares these counts
    inactive  it ran out of credit and dispatch no longer waits for it
    """

    __slots__ = ("consumer", "inactive", "served", "stream")

    def __init__(self, stream: Stream, consumer: Consumer) -> None:
        self.stream = stream
        self.consumer = consumer
        self.served = stream.min_served
        self.inactive = False


def add_subscription(stream: Stream, consumer: Consumer) -> None:
    """Subscribe `consumer` to `stream`, level with the subscription that was served least."""
    if len(stream.subscriptions) == 1:  # a single subscription doesn't update `min_served`
        stream.min_served = stream.subscriptions[0].served
    subscription = StreamSubscription(stream, consumer)
    stream.subscriptions.append(subscription)
    consumer.subscriptions.append(subscription)


def remove_subscriptions(consumer: Consumer) -> None:
    """End all subscriptions and the credit. Leases stay."""
    consumer.credit = 0
    for subscription in consumer.subscriptions:
        subscription.stream.subscriptions.remove(subscription)
    consumer.subscriptions = []
