"""All streams and consumers together: subscriptions, acks, and what happens as time passes. Pure.

`Queue` doesn't check permissions and doesn't wait for anything.
"""

from collections.abc import Callable, Iterable

from appliance.courier.change import (
    JournalChange,
    StreamForgotten,
    StreamPaused,
    StreamResumed,
)
from appliance.courier.consumer import Consumer, add_subscription, remove_subscriptions
from appliance.courier.fair_dispatch import dispatch, dispatch_to
from appliance.courier.item import Expiry, StreamItem
from appliance.courier.outcome_log import OutcomeLog
from appliance.courier.policy import StreamPolicy, is_pattern, matches
from appliance.courier.stream import Stream
from appliance.courier.stream_stats import StreamStats
from appliance.courier.timers import Timers

STREAMS_MAX = 10_000  # maximum streams at a time
SAMPLE_EVERY_MS = 1000.0  # between a stream's samples
SAMPLED_MAX = 500  # streams sampled in one tick


class Queue:
    def __init__(
        self,
        policy_of: Callable[[str], StreamPolicy],
        idle_ms: float,
        label_of: Callable[[str], str] = lambda _: "other",
        outcomes: OutcomeLog | None = None,
    ) -> None:
        """Take the policies. `label_of` returns a stream name's metrics label."""
        self.outcomes = OutcomeLog() if outcomes is None else outcomes
        self.streams: dict[str, Stream] = {}
        self.consumers: dict[str, Consumer] = {}
        self.timers = Timers()
        self.forgotten_stats: dict[str, StreamStats] = {}  # label → forgotten streams' counts
        self.changes: list[JournalChange] = []  # not written to the journal yet
        self._policy_of = policy_of
        self._label_of = label_of
        self._idle_ms = idle_ms
        self._pattern_consumers: set[Consumer] = set()
        self._timed_pauses: set[Stream] = set()
        self._sampled_ms = 0.0
        self._to_sample: list[Stream] = []
        self._deferred: set[Stream] = set()
        self._last_used_ms: dict[str, float] = {}

    # -- streams ------------------------------------------------------------------------

    def open(self, name: str, now: float) -> Stream:
        """Return the stream with this name, created if missing."""
        stream = self.streams.get(name)
        if stream is None:
            policy = self._policy_of(name)
            stream = Stream(
                name, policy, self.timers, self._deferred, self.changes, self.outcomes,
                self._label_of(name),
            )  # fmt: skip
            self.streams[name] = stream
            self._last_used_ms[name] = now
            for consumer in self._pattern_consumers:
                if consumer.glob is not None and matches(consumer.glob, name):
                    add_subscription(stream, consumer)
        return stream

    # -- consumers ----------------------------------------------------------------------

    def subscribe(self, consumer: Consumer, name: str, now: float) -> None:
        """Subscribe to one stream, or to all that match a pattern, including later ones."""
        self.consumers[consumer.id] = consumer
        if not is_pattern(name):
            add_subscription(self.open(name, now), consumer)
            return
        consumer.glob = name
        self._pattern_consumers.add(consumer)
        for stream in self.streams.values():
            if matches(name, stream.name):
                add_subscription(stream, consumer)

    def grant(self, consumer: Consumer, credit: int, now: float) -> None:
        consumer.grant(credit, now)
        if consumer.credit:
            dispatch_to(consumer, now)

    def unsubscribe(self, consumer: Consumer) -> None:
        """Deliver nothing more to a consumer, which keeps its leases."""
        remove_subscriptions(consumer)
        self._pattern_consumers.discard(consumer)
        if not consumer.inflight:
            self.consumers.pop(consumer.id, None)

    def disconnect(self, consumer: Consumer, now: float, is_lost: bool = False) -> int:
        """Remove a consumer and release its leases, in order, or expire a lost consumer's leases
        that were sent. Return how many."""
        remove_subscriptions(consumer)
        self._pattern_consumers.discard(consumer)
        self.consumers.pop(consumer.id, None)
        items = sorted(consumer.inflight.values(), key=lambda item: (item.stream.name, item.order))
        lost = set(items).difference(consumer.outgoing) if is_lost else ()
        touched: dict[str, Stream] = {}
        for item in items:
            if item in lost:
                item.stream.expire_lease(item, now)
            else:
                item.stream.release(item, now)
            touched[item.stream.name] = item.stream
        for stream in touched.values():
            dispatch(stream, now)
        return len(items)

    # -- ended leases -----------------------------------------------------------------------

    def ack(
        self,
        consumer: Consumer,
        ids: Iterable[str],
        now: float,
        touched: dict[str, Stream] | None = None,
    ) -> list[str]:
        """Ack envelopes. Returns ids without a lease; adds the streams concerned to `touched`."""
        lost: list[str] = []
        inflight = consumer.inflight
        last: Stream | None = None
        for id_ in ids:
            item = inflight.get(id_) or consumer.find(id_)
            if item is None:
                lost.append(id_)
                continue
            stream = item.stream
            stream.ack(item, now)
            if stream is not last:
                last = stream
                if touched is not None:
                    touched[stream.name] = stream
        return lost

    # -- time --------------------------------------------------------------------------------

    def tick(self, now: float, limit: int) -> dict[str, int]:
        """Handle at most `limit` due timers, and pauses that end. Returns counts by kind."""
        streams: dict[str, Stream] = {}
        counts = {"lease_expired": 0, "due": 0, "expired": 0, "resumed": 0}
        for timer in self.timers.take_due(now, limit):
            item = timer.item if isinstance(timer, Expiry) else timer
            assert isinstance(item, StreamItem)
            if isinstance(timer, Expiry):
                counts["expired"] += item.stream.on_expiry(item, now)
            else:
                consumer = item.consumer
                outcome = item.stream.on_timer(item, now)
                if outcome:
                    counts[outcome] += 1
                if consumer is not None and self._is_done(consumer):
                    self.consumers.pop(consumer.id, None)
            streams[item.stream.name] = item.stream
        for stream in [s for s in self._timed_pauses if (s.paused_until or now) <= now]:
            self.resume(stream, now)
            counts["resumed"] += 1
        for stream in streams.values():
            dispatch(stream, now)
        self._sample_streams(now)
        return counts

    def next_tick_ms(self, now: float) -> float:
        """Return when the next tick is due; now, if work is left."""
        if self._to_sample or self._deferred:
            return now
        ends = [s.paused_until for s in self._timed_pauses if s.paused_until is not None]
        ends.append(self._sampled_ms + SAMPLE_EVERY_MS)
        due = self.timers.next_due()
        return min(ends) if due is None else min(due, *ends)

    def _is_done(self, consumer: Consumer) -> bool:
        return (
            not consumer.inflight
            and not consumer.subscriptions
            and consumer not in self._pattern_consumers
        )

    def dispatch_deferred(self, now: float) -> None:
        """Dispatch streams that waited for a quick consumer; the wait is over."""
        streams = list(self._deferred)
        self._deferred.clear()
        for stream in streams:
            dispatch(stream, now)

    def _sample_streams(self, now: float) -> None:
        """Sample each stream's rates once a second, drop old ids, forget unused streams.

        At most SAMPLED_MAX streams in one tick, so that ticks stay short.
        """
        if not self._to_sample and now - self._sampled_ms >= SAMPLE_EVERY_MS:
            self._sampled_ms = now
            self._to_sample = list(self.streams.values())
        batch, self._to_sample = self._to_sample[:SAMPLED_MAX], self._to_sample[SAMPLED_MAX:]
        for stream in batch:
            stats = stream.stats
            activity = stats.enqueued + stats.delivered + stats.duplicates
            stats.sample(now)
            stream.recent_ids.prune(now)
            if stream.is_busy or has_named_consumer(stream):
                self._last_used_ms[stream.name] = now
            elif stats.activity != activity:
                stats.activity = activity
                self._last_used_ms[stream.name] = now
            elif now - self._last_used_ms[stream.name] > self._idle_ms and not stream.recent_ids:
                self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        for subscription in stream.subscriptions:
            subscription.consumer.subscriptions.remove(subscription)
        self.forgotten_stats.setdefault(stream.label, StreamStats()).add(stream.stats)
        if stream.policy.durable:
            self.changes.append(StreamForgotten(stream.name))
        del self.streams[stream.name], self._last_used_ms[stream.name]

    # -- operators -----------------------------------------------------------------------------

    def pause(self, stream: Stream, until: float | None, now: float) -> None:
        self.set_paused(stream, until)
        if stream.policy.durable:
            left_ms = None if until is None else until - now
            self.changes.append(StreamPaused(stream.name, left_ms))

    def set_paused(self, stream: Stream, until: float | None) -> None:
        """Pause a stream without writing it to the journal."""
        stream.paused, stream.paused_until = True, until
        if until is None:
            self._timed_pauses.discard(stream)
        else:
            self._timed_pauses.add(stream)
            self.timers.wake()

    def resume(self, stream: Stream, now: float) -> None:
        stream.paused, stream.paused_until = False, None
        self._timed_pauses.discard(stream)
        if stream.policy.durable:
            self.changes.append(StreamResumed(stream.name))
        dispatch(stream, now)


def has_named_consumer(stream: Stream) -> bool:
    """Return whether a consumer subscribed to this stream by its name. A subscription to a pattern
    doesn't keep a stream: a returning stream gets a new subscription."""
    return any(subscription.consumer.glob is None for subscription in stream.subscriptions)
