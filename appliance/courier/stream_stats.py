"""Counts a stream: every envelope, what became of it, rates and latencies. Pure."""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

from appliance.courier.item import StreamItem

LATENCIES_MAX = 1024  # latencies kept for the percentiles
RATE_SAMPLES_MAX = 6  # seconds over which rates are averaged
BOUNDS_MS = (0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 5000.0)


COUNTS = (
    "acked", "dead_lettered", "delivered", "duplicates", "enqueued", "expired", "expired_leases",
    "failed", "redelivered", "redriven", "rejected", "released",
)  # fmt: skip


class StreamStats:
    """Plain numbers, because they are updated for every envelope and read rarely."""

    def __init__(self) -> None:
        self.enqueued = self.duplicates = self.delivered = self.redelivered = 0
        self.acked = self.released = self.failed = self.rejected = self.expired_leases = 0
        self.dead_lettered = self.redriven = self.expired = self.activity = 0
        self.dropped: dict[str, int] = {}
        self.buckets = [0] * (len(BOUNDS_MS) + 1)
        self.latency_sum_ms = 0.0
        self._latencies: deque[float] = deque(maxlen=LATENCIES_MAX)
        self._rate_samples: deque[tuple[float, int, int]] = deque(maxlen=RATE_SAMPLES_MAX)

    def record_deliveries(self, items: Sequence[StreamItem], now: float) -> None:
        """Count deliveries, and for first deliveries the latency."""
        self.delivered += len(items)
        for item in items:
            if item.delivered > 1:
                self.redelivered += 1
            else:
                waited_ms = now - item.at
                self._latencies.append(waited_ms)
                self.buckets[bisect_left(BOUNDS_MS, waited_ms)] += 1
                self.latency_sum_ms += waited_ms

    def record_drop(self, reason: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def sample(self, now_ms: float) -> None:
        """Keep the current counts for the rates. Called once a second."""
        self._rate_samples.append((now_ms, self.enqueued, self.delivered))

    def rates(self, now_ms: float) -> tuple[float, float]:
        """Return (in, out) per second, over the last few seconds."""
        if not self._rate_samples:
            return 0.0, 0.0
        then, enqueued, delivered = self._rate_samples[0]
        seconds = max((now_ms - then) / 1000, 0.001)
        return (self.enqueued - enqueued) / seconds, (self.delivered - delivered) / seconds

    def percentiles(self) -> tuple[float, float]:
        """Return (p50, p95) for the time from acceptance to first delivery, in milliseconds."""
        if not self._latencies:
            return 0.0, 0.0
        ordered = sorted(self._latencies)
        last = len(ordered) - 1
        return ordered[int(last * 0.5)], ordered[int(last * 0.95)]

    def add(self, other: "StreamStats") -> None:
        """Add a forgotten stream's counts."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for reason, count in other.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count
        self.buckets = [a + b for a, b in zip(self.buckets, other.buckets, strict=True)]
        self.latency_sum_ms += other.latency_sum_ms
