"""Rate limits in fixed windows of one second: per connection, credential, address, and for all.

A request is admitted when every enabled limit has room for its cost, and only then is it
counted, in all of them. So a refused request uses up nothing: who floods loses their own
requests and not those of others.

Requests without a valid token may use only a share of the limit for all, so they can't use up
what callers with a token need. Failed authentication is counted for each address on its own.

A batch may cost more than a limit allows in a second. It is admitted at the start of a
window in which its caller has used nothing yet, and what it took beyond the limit is
owed: the caller's next windows start with the debt. The average is the limit, and no
batch is refused for ever.

When the window turns, all counts but debts are forgotten, so memory is bounded by what
one second admits.
"""

import ipaddress
import math

import msgspec

from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import Exhausted
from appliance.kernel.metrics import counter
from appliance.web.settings import LimitSettings

UNAUTHENTICATED, GLOBAL = "unauthenticated", "global"
_OTHERS = "others"
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
        self.which = which


class RateLimiter:
    """Counts of the running second. Used on the event loop only."""

    def __init__(self, settings: LimitSettings, clock: Clock) -> None:
        self._clock = clock
        self._window = 0
        self._reset_iso = ""
        self._tables: list[tuple[str, int, dict[str, int]]] = []
        share = settings.unauthenticated_share
        for name, limit in (
            ("connection", settings.per_connection),
            ("token", settings.per_token),
            ("address", settings.per_address),
            (UNAUTHENTICATED, math.ceil(settings.global_ * share) if share < 1 else 0),
            (GLOBAL, settings.global_),
        ):
            if limit > 0:
                self._tables.append((name, limit, {}))
        self._counts = {name: used_by for name, _, used_by in self._tables}
        self._addresses_max = settings.addresses_max
        self._failures_max = settings.failures_per_address
        self._failures: dict[str, int] = {}
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

        `principal_id` is None for a request without a valid token. `counted` is the part of `cost`
        that this same request was counted with before: what a batch costs is known only after its
        body was read.
        """
        if not self._tables:
            return None
        now_ms = self._clock.now_ms()
        window = now_ms // 1000
        if window != self._window:
            self._turn(window)
        keys = {
            "connection": connection,
            "token": principal_id,
            "address": address,
            UNAUTHENTICATED: "" if principal_id is None else None,
            GLOBAL: "",
        }
        if "address" in self._counts:
            keys["address"] = self._place(self._counts["address"], address)
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

    def fail(self, address: str) -> None:
        """Count a failed authentication, or raise RateLimited if its address had too many."""
        if not self._failures_max:
            return
        now_ms = self._clock.now_ms()
        window = now_ms // 1000
        if window != self._window:
            self._turn(window)
        place = self._place(self._failures, address)
        used = self._failures.get(place, 0)
        if used >= self._failures_max:
            raise self._refusal("failures", self._failures_max, used, 1, now_ms)
        self._failures[place] = used + 1

    def uncount(self, *names: str) -> None:
        """Give back one request to these limits, which it turned out not to belong to."""
        for name in names:
            used_by = self._counts.get(name)
            if used_by and used_by.get("", 0) > 0:
                used_by[""] -= 1

    def _place(self, used_by: dict[str, int], address: str) -> str:
        """The key of an address: its network for IPv6, and one for all that are too many."""
        place = network_of(address) if ":" in address else address
        if place not in used_by and len(used_by) >= self._addresses_max:
            return _OTHERS
        return place

    def _turn(self, window: int) -> None:
        self._failures.clear()
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


def network_of(address: str) -> str:
    """The /64 network of an IPv6 address, for one client has all of it; IPv4 as it is."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    return str(ip.ipv4_mapped or ipaddress.IPv6Address(int(ip) >> 64 << 64))
