"""What a stream counts: every envelope that came, and what became of each. Pure."""

from collections import deque
from collections.abc import Sequence

from appliance.courier.item import Item

SAMPLES_MAX = 1024  # latencies kept for the percentiles
MARKS_MAX = 6  # seconds over which rates are averaged
BOUNDS_MS = (0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 5000.0)


COUNTS = (
    "acked", "buried", "delivered", "duplicates", "enqueued", "expired", "expired_leases",
    "failed", "redelivered", "redriven", "rejected", "released",
)  # fmt: skip


class Tally:
    """Plain numbers: they are touched for every envelope, and read seldom."""

    __slots__ = (
        "_marks", "_next", "_samples", "acked", "buckets", "buried", "delivered", "dropped",
        "duplicates", "enqueued", "expired", "expired_leases", "failed", "latency_sum_ms",
        "moved", "redelivered", "redriven", "rejected", "released",
    )  # fmt: skip

    def __init__(self) -> None:
        self.enqueued = self.duplicates = self.delivered = self.redelivered = 0
        self.acked = self.released = self.failed = self.rejected = self.expired_leases = 0
        self.buried = self.redriven = self.expired = self.moved = 0
        self.dropped: dict[str, int] = {}
        self.buckets = [0] * (len(BOUNDS_MS) + 1)
        self.latency_sum_ms = 0.0
        self._samples: list[float] = []
        self._next = 0
        self._marks: deque[tuple[float, int, int]] = deque(maxlen=MARKS_MAX)

    def deliver(self, items: Sequence[Item], now: float) -> None:
        """Count deliveries; the first of each envelope tells how long it waited."""
        self.delivered += len(items)
        samples = self._samples
        last_ms, count = -1.0, 0
        for item in items:
            if item.delivered > 1:
                self.redelivered += 1
                continue
            waited = now - item.at
            if waited == last_ms:  # what came together leaves together
                count += 1
                continue
            if count:
                self._wait(last_ms, count)
            last_ms, count = waited, 1
            if len(samples) < SAMPLES_MAX:
                samples.append(waited)
            else:
                samples[self._next] = waited
                self._next = (self._next + 1) % SAMPLES_MAX
        if count:
            self._wait(last_ms, count)

    def _wait(self, waited_ms: float, count: int) -> None:
        place = 0
        for bound in BOUNDS_MS:
            if waited_ms <= bound:
                break
            place += 1
        self.buckets[place] += count
        self.latency_sum_ms += waited_ms * count

    def drop(self, reason: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def mark(self, now_ms: float) -> None:
        """Remember how far the counts are; once a second."""
        self._marks.append((now_ms, self.enqueued, self.delivered))

    def rates(self, now_ms: float) -> tuple[float, float]:
        """(in, out) a second, over the last few seconds."""
        if not self._marks:
            return 0.0, 0.0
        then, enqueued, delivered = self._marks[0]
        seconds = max((now_ms - then) / 1000, 0.001)
        return (self.enqueued - enqueued) / seconds, (self.delivered - delivered) / seconds

    def percentiles(self) -> tuple[float, float]:
        """(p50, p95) of the milliseconds from acceptance to first delivery."""
        if not self._samples:
            return 0.0, 0.0
        ordered = sorted(self._samples)
        last = len(ordered) - 1
        return ordered[int(last * 0.5)], ordered[int(last * 0.95)]

    def add(self, other: "Tally") -> None:
        """Take over the counts of a stream that is forgotten."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for reason, count in other.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count
        self.buckets = [a + b for a, b in zip(self.buckets, other.buckets, strict=True)]
        self.latency_sum_ms += other.latency_sum_ms

    def settled(self) -> int:
        """Envelopes that are gone, one way or the other."""
        return self.acked + sum(self.dropped.values())
