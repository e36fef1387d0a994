"""A token bucket: a rate limit that allows bursts. Pure; the caller passes the time in seconds."""


class TokenBucket:
    """Holds up to `burst` tokens and gains `rate` tokens a second, starting full.

    A cost above the burst is taken from a full bucket and leaves a debt: no batch is refused
    forever, and the average rate stays. A clock that goes back adds nothing.
    """

    __slots__ = ("_burst", "_level", "_updated", "rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate = rate
        self._burst = max(burst, 1.0)
        self._level = self._burst
        self._updated = now

    def charge(self, cost: float, now: float) -> float:
        """Take `cost` tokens and return 0, or take none and return the seconds until they fit."""
        wait = self.wait_seconds(cost, now)
        if not wait:
            self._level -= cost
        return wait

    def give_back(self, count: float, now: float) -> None:
        """Return tokens that were taken for something that didn't happen."""
        self._refill(now)
        self._level = min(self._burst, self._level + count)

    def wait_seconds(self, cost: float, now: float) -> float:
        """Return the seconds until `charge(cost)` succeeds; 0 if it does now."""
        self._refill(now)
        needed = min(float(cost), self._burst)
        return max(0.0, (needed - self._level) / self.rate)

    def is_full(self, now: float) -> bool:
        """Return whether nothing was charged lately: a full bucket can be forgotten."""
        self._refill(now)
        return self._level >= self._burst

    def _refill(self, now: float) -> None:
        elapsed = max(0.0, now - self._updated)
        self._updated = now
        self._level = min(self._burst, self._level + elapsed * self.rate)
