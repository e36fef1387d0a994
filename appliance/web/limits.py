"""Rate limits in fixed windows of one second: per connection, credential, address, and for all.

A request is admitted when every enabled limit has room for its cost, and only then is it
counted, in all of them. So a refused request uses up nothing: who floods loses their own
requests and not those of others.

A batch may cost more than a limit allows in a second. It is admitted at the start of a
window in which its caller has used nothing yet, and what it took beyond the limit is
owed: the caller's next windows start with the debt. The average is the limit, and no
batch is refused for ever.

When the window turns, all counts but debts are forgotten, so memory is bounded by what
one second admits.
"""

import msgspec

from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import Exhausted
from appliance.kernel.metrics import counter
from appliance.web.settings import LimitSettings

_refused = counter("http_rate_limited_total", "Requests refused by a rate limit", ("limit",))


class Allowance(msgspec.Struct, frozen=True):
    """What the tightest enabled limit still allows in this window."""

    limit: int
    remaining: int
    reset_iso: str


class RateLimited(Exhausted):
    """`allowance` is what the headers say about the limit that was hit."""

    advice = "wait for retry_after seconds; limits are in [limits] of agentlip.toml"

    def __init__(self, allowance: Allowance, which: str, retry_after: float) -> None:
        super().__init__(
            details={
                "limit": allowance.limit,
                "window": "1s",
                "retry_after": retry_after,
                "scope": which,
            },
            retry_after=retry_after,
        )
        self.allowance = allowance


class RateLimiter:
    """Counts of the running second. Used on the event loop only."""

    def __init__(self, settings: LimitSettings, clock: Clock) -> None:
        self._clock = clock
        self._window = 0
        self._reset_iso = ""
        self._tables: list[tuple[str, int, dict[str, int]]] = []
        for name, limit in (
            ("connection", settings.per_connection),
            ("token", settings.per_token),
            ("address", settings.per_address),
            ("global", settings.global_),
        ):
            if limit > 0:
                self._tables.append((name, limit, {}))
        self._owing = False

    def take(
        self,
        connection: str,
        principal_id: str | None,
        address: str,
        cost: int = 1,
        counted: int = 0,
    ) -> Allowance | None:
        """Count a request, or raise RateLimited. None when every limit is off.

        `counted` is the part of `cost` that this same request was counted with before:
        what a batch costs is known only after its body was read.
        """
        if not self._tables:
            return None
        now_ms = self._clock.now_ms()
        window = now_ms // 1000
        if window != self._window:
            self._turn(window)
        keys = {"connection": connection, "token": principal_id, "address": address, "global": ""}
        tightest, least = 0, 1 << 62
        admitted = []
        for name, limit, used_by in self._tables:
            key = keys[name]
            if key is None:
                continue
            used = used_by.get(key, 0) - counted
            left = limit - used - cost
            if left < 0:
                if used or cost <= limit:
                    raise self._refusal(name, limit, used, cost, now_ms)
                self._owing = True
                left = 0
            admitted.append((used_by, key, used))
            if left < least:
                tightest, least = limit, left
        for used_by, key, used in admitted:
            used_by[key] = used + cost
        return Allowance(tightest, least, self._reset_iso) if admitted else None

    def _turn(self, window: int) -> None:
        passed = max(1, window - self._window)
        for _, limit, used_by in self._tables:
            owed = {}
            if self._owing:
                paid = limit * passed
                owed = {key: used - paid for key, used in used_by.items() if used > paid}
            used_by.clear()
            used_by.update(owed)
        self._owing = any(
            used > limit for _, limit, used_by in self._tables for used in used_by.values()
        )
        self._window = window
        self._reset_iso = iso((window + 1) * 1000)

    def _refusal(self, name: str, limit: int, used: int, cost: int, now_ms: int) -> RateLimited:
        _refused.labels(name).inc()
        left = max(0, limit - used)
        target = max(0, limit - cost)  # the most that may be used for this cost to fit
        windows = max(1, -(-(used - target) // limit)) if used > limit else 1
        wait_ms = (self._window + windows) * 1000 - now_ms
        return RateLimited(Allowance(limit, left, self._reset_iso), name, max(wait_ms, 1) / 1000)
