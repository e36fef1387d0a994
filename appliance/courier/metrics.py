"""Exposes the courier's metrics. Users choose stream names, so the label is the declared pattern
that matches the stream. The JSON at `/v1/metrics` has each stream by name.

The queue updates plain numbers for every envelope, which become metrics at a collection.
"""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from appliance.courier.queue import Queue
from appliance.courier.stream import Stream
from appliance.courier.stream_stats import BOUNDS_MS, StreamStats
from appliance.kernel.metrics import REGISTRY, counter, gauge
from appliance.kernel.threads import in_turns

triggers = counter("courier_triggers_total", "Trigger actions by outcome", ("action", "outcome"))
emitted = counter("courier_emitted_total", "Trigger emit actions by name", ("name",))
errors = counter("courier_error_frames_total", "Error frames sent on WebSockets", ("code",))
sessions = gauge("courier_sessions", "Open WebSockets and event streams", ("kind",))

Groups = dict[str, list[Stream]]  # by label

STATES = ("ready", "delayed", "leased", "dead")
# (metric, StreamStats attribute, help)
COUNTERS = (
    ("enqueued", "enqueued", "Envelopes accepted (q.in)"),
    ("delivered", "delivered", "Deliveries (q.out)"),
    ("acked", "acked", "Envelopes acked (q.ack)"),
    ("redelivered", "redelivered", "Deliveries after the first (q.re)"),
    ("duplicates", "duplicates", "Envelopes ignored because their id is known"),
    ("released", "released", "Leases released without counting an attempt"),
    ("failed", "failed", "Leases that ended with a failed attempt"),
    ("rejected", "rejected", "Leases that ended with a rejection"),
    ("expired_leases", "expired_leases", "Leases that expired"),
    ("buried", "dead_lettered", "Envelopes that became dead letters"),
    ("redriven", "redriven", "Dead letters redriven"),
)


class CourierCollector:
    """Collects the metrics of this process's courier."""

    def __init__(self) -> None:
        self._watched: tuple[Queue, Callable[[], float]] | None = None

    def watch(self, queue: Queue, now: Callable[[], float]) -> None:
        self._watched = queue, now

    def describe(self) -> Iterable[Metric]:
        """Return all metrics without samples, which the registry looks up by their names."""
        return [*self._counters({}), *self._gauges({}, 0.0), self._latency({})]

    def collect(self) -> Iterable[Metric]:
        if self._watched is None:
            return
        queue, now = self._watched
        past = queue.forgotten_stats
        groups: Groups = {pattern: [] for pattern in ("other", *past)}  # a counter never falls
        for stream in queue.streams.values():
            groups.setdefault(stream.label, []).append(stream)
        totals = {pattern: StreamStats() for pattern in groups}
        for pattern, stats in past.items():
            totals[pattern].add(stats)
        for pattern, streams in groups.items():
            for stream in in_turns(streams):
                totals[pattern].add(stream.stats)
        yield from self._counters(totals)
        yield from self._gauges(groups, now())
        yield self._latency(totals)

    def _counters(self, totals: Mapping[str, StreamStats]) -> Iterable[Metric]:
        for name, attribute, text in COUNTERS:
            family = CounterMetricFamily(f"agentlip_courier_{name}", text, labels=["pattern"])
            for pattern, total in totals.items():
                family.add_metric([pattern], getattr(total, attribute))
            yield family
        dropped = CounterMetricFamily(
            "agentlip_courier_dropped", "Envelopes dropped by reason", labels=["pattern", "reason"]
        )
        for pattern, total in totals.items():
            for reason, count in total.dropped.items():
                dropped.add_metric([pattern, reason], count)
        yield dropped

    def _gauges(self, groups: Groups, now: float) -> Iterable[Metric]:
        states = _gauge("envelopes", "Envelopes by state (q.depth, q.if)", "state")
        sizes = _gauge("bytes", "Stored envelope bytes")
        oldest = _gauge("oldest_ready_seconds", "Oldest ready envelope's age")
        stream_counts = _gauge("streams", "Streams")
        paused = _gauge("streams_paused", "Paused streams")
        for pattern, streams in groups.items():
            counts = [stream.counts() for stream in in_turns(streams)]
            for state in STATES:
                states.add_metric([pattern, state], sum(count[state] for count in counts))
            sizes.add_metric([pattern], sum(stream.bytes for stream in streams))
            ages = [stream.oldest_ready_ms(now) for stream in in_turns(streams)]
            oldest.add_metric([pattern], max(ages, default=0.0) / 1000)
            stream_counts.add_metric([pattern], len(streams))
            paused.add_metric([pattern], sum(stream.paused for stream in streams))
        return [states, sizes, oldest, stream_counts, paused]

    def _latency(self, totals: Mapping[str, StreamStats]) -> Metric:
        family = HistogramMetricFamily(
            "agentlip_courier_delivery_seconds",
            "Time from acceptance to first delivery",
            labels=["pattern"],
        )
        for pattern, total in totals.items():
            below, buckets = 0, []
            for bound, count in zip((*BOUNDS_MS, None), total.buckets, strict=True):
                below += count
                buckets.append(("+Inf" if bound is None else str(bound / 1000), float(below)))
            family.add_metric([pattern], buckets, total.latency_sum_ms / 1000)
        return family


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"agentlip_courier_{name}", text, labels=["pattern", *labels])


_collector = CourierCollector()
REGISTRY.register(_collector)
watch = _collector.watch


COURIER_REGISTRY = CollectorRegistry()
"""The courier's metrics only. `/metrics` has all subsystems' metrics."""
for _metric in (_collector, triggers, emitted, errors, sessions):
    COURIER_REGISTRY.register(_metric)
