"""What the courier counts. Streams are named by users, so they are no labels: the pattern
that declares them is one, and the JSON of `/v1/metrics` has each stream by its name.

The queue keeps plain numbers, for it touches them with every envelope; they become
metrics when somebody asks.
"""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from appliance.courier.queue import Queue
from appliance.courier.ring import Ring
from appliance.courier.settings import CourierSettings
from appliance.courier.tally import BOUNDS_MS, Tally
from appliance.kernel.metrics import REGISTRY, counter, gauge

triggers = counter("courier_triggers_total", "Actions of triggers", ("action", "outcome"))
emitted = counter("courier_emitted_total", "What triggers emitted", ("name",))
errors = counter("courier_error_frames_total", "Error frames sent on sockets", ("code",))
sessions = gauge("courier_sessions", "Sockets and streams open", ("kind",))

COUNTED = {
    "enqueued": "Envelopes accepted (q.in)",
    "delivered": "Deliveries (q.out)",
    "acked": "Envelopes acked (q.ack)",
    "redelivered": "Deliveries after the first (q.re)",
    "duplicates": "Envelopes ignored because their id was known",
    "released": "Leases given back uncounted",
    "failed": "Leases ended by a counted nack",
    "rejected": "Leases ended by a rejection",
    "expired_leases": "Leases that ran out",
    "buried": "Envelopes that became dead letters",
    "redriven": "Dead letters that got a new life",
}


class Collector:
    """Reads the queue of the one courier in this process."""

    def __init__(self) -> None:
        self._queue: Queue | None = None
        self._settings = CourierSettings()
        self._patterns: dict[str, str] = {}
        self._now: Callable[[], float] = lambda: 0.0

    def watch(self, queue: Queue, settings: CourierSettings, now: Callable[[], float]) -> None:
        self._queue, self._settings, self._now = queue, settings, now
        self._patterns = {}

    def _pattern_of(self, stream: str) -> str:
        if len(self._patterns) > 2 * self._settings.streams_max:
            self._patterns.clear()
        pattern = self._patterns.get(stream)
        if pattern is None:
            pattern = self._patterns[stream] = self._settings.pattern_of(stream)
        return pattern

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        if self._queue is None:
            return
        groups: dict[str, list[Ring]] = {}
        for ring in self._queue.rings.values():
            groups.setdefault(self._pattern_of(ring.name), []).append(ring)
        for pattern in ("other", *self._queue.past):  # a counter never falls
            groups.setdefault(pattern, [])
        yield from self._counters(groups)
        yield from self._gauges(groups)
        yield self._latency(groups)

    def _counters(self, groups: dict[str, list[Ring]]) -> Iterable[Metric]:
        past = self._queue.past if self._queue else {}
        nothing = Tally()
        for name, text in COUNTED.items():
            family = CounterMetricFamily(f"agentlip_courier_{name}", text, labels=["pattern"])
            for pattern, rings in groups.items():
                gone = getattr(past.get(pattern, nothing), name)
                family.add_metric([pattern], gone + sum(getattr(r.tally, name) for r in rings))
            yield family
        dropped = CounterMetricFamily(
            "agentlip_courier_dropped", "Envelopes dropped", labels=["pattern", "reason"]
        )
        for pattern, rings in groups.items():
            reasons = dict(past.get(pattern, nothing).dropped)
            for ring in rings:
                for reason, count in ring.tally.dropped.items():
                    reasons[reason] = reasons.get(reason, 0) + count
            for reason, count in reasons.items():
                dropped.add_metric([pattern, reason], count)
        yield dropped

    def _gauges(self, groups: dict[str, list[Ring]]) -> Iterable[Metric]:
        states = GaugeMetricFamily(
            "agentlip_courier_envelopes",
            "Envelopes by state (q.depth, q.if)",
            labels=["pattern", "state"],
        )
        sizes = GaugeMetricFamily(
            "agentlip_courier_bytes", "Bytes of envelopes held", labels=["pattern"]
        )
        oldest = GaugeMetricFamily(
            "agentlip_courier_oldest_ready_seconds",
            "How long the envelope that waits longest has been ready",
            labels=["pattern"],
        )
        streams = GaugeMetricFamily("agentlip_courier_streams", "Streams", labels=["pattern"])
        paused = GaugeMetricFamily(
            "agentlip_courier_streams_paused", "Streams paused", labels=["pattern"]
        )
        now = self._now()
        for pattern, rings in groups.items():
            totals: dict[str, int] = dict.fromkeys(("ready", "delayed", "leased", "dead"), 0)
            for ring in rings:
                for state, count in ring.counts().items():
                    totals[state] += count
            for state, count in totals.items():
                states.add_metric([pattern, state], count)
            sizes.add_metric([pattern], sum(ring.bytes for ring in rings))
            ages = [now - item.since for r in rings if (item := r.lanes.oldest()) is not None]
            oldest.add_metric([pattern], max(ages, default=0.0) / 1000)
            streams.add_metric([pattern], len(rings))
            paused.add_metric([pattern], sum(ring.paused for ring in rings))
        return [states, sizes, oldest, streams, paused]

    def _latency(self, groups: dict[str, list[Ring]]) -> Metric:
        family = HistogramMetricFamily(
            "agentlip_courier_delivery_seconds",
            "From acceptance to first delivery",
            labels=["pattern"],
        )
        past = self._queue.past if self._queue else {}
        for pattern, rings in groups.items():
            total = Tally()
            for tally in (*([past[pattern]] if pattern in past else ()), *(r.tally for r in rings)):
                total.add(tally)
            below, buckets = 0, []
            for bound, count in zip((*BOUNDS_MS, None), total.buckets, strict=True):
                below += count
                buckets.append(("+Inf" if bound is None else str(bound / 1000), float(below)))
            family.add_metric([pattern], buckets, total.latency_sum_ms / 1000)
        return family


_collector = Collector()
REGISTRY.register(_collector)
watch = _collector.watch


_own = CollectorRegistry()
for _one in (_collector, triggers, emitted, errors, sessions):
    _own.register(_one)


def exposition() -> bytes:
    """What the courier counts, as Prometheus text; the rest is told by `/metrics`."""
    return generate_latest(_own)
