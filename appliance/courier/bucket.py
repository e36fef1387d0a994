"""A token bucket: so many a second, and so many at once after a rest. Pure."""


class Bucket:
    __slots__ = ("_burst", "_level", "_rate", "_then_ms")

    def __init__(self, rate: float, burst: float, now_ms: float) -> None:
        self._rate = rate
        self._burst = max(burst, rate, 1.0)
        self._level = self._burst
        self._then_ms = now_ms

    def take(self, cost: int, now_ms: float) -> float:
        """0 when `cost` was taken; else the seconds after which it would fit.

        A cost above the burst is taken from a full bucket and owed: no batch is refused
        for ever, and the average stays.
        """
        passed = max(0.0, now_ms - self._then_ms) / 1000
        self._then_ms = now_ms
        self._level = min(self._burst, self._level + passed * self._rate)
        needed = min(float(cost), self._burst)
        if self._level < needed:
            return (needed - self._level) / self._rate
        self._level -= cost
        return 0.0

    def is_full(self, now_ms: float) -> bool:
        passed = max(0.0, now_ms - self._then_ms) / 1000
        return self._level + passed * self._rate >= self._burst
