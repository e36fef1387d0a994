"""Limits rates in fixed windows with one second: per connection, token and address, and global.

A request is admitted if its cost fits in every enabled limit. Only then is it counted, in all of
them. So a refused request uses up nothing, and a flood affects only its sender.

Requests without a valid token may use only a share of the global limit, so they can't use up what
callers with a token need. Failed authentication, and requests to routes that work without a token,
are counted per address.

A batch that costs more than a limit allows per second is admitted if its caller has used nothing in
the window, and the excess is a debt in the caller's next windows. So the average stays at the
limit, and no batch is refused forever.

When a window ends all counts but debts are dropped, so memory is bounded by one second's requests.
"""

import ipaddress
import math

import msgspec

from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import Exhausted
from appliance.kernel.metrics import counter
from appliance.web.address import ip_of
from appliance.web.settings import LimitSettings

UNAUTHENTICATED, GLOBAL = "unauthenticated", "global"
_OTHERS = "others"
UNAUTHENTICATED_SHARE = 0.5  # share of `limits.global`; the rest is for callers with a token
OPEN_CONNECTIONS = 2
"""Without a token, an address may send as much as this many connections: six times a second the
UI's files."""

OPEN_CHANGE_COST = 10  # a sign-in, or an answer by a link, reads a store
ADDRESSES_MAX = 10_000  # counted separately in a second, about 100 bytes each
_refused = counter("http_rate_limited_total", "Requests refused, by rate limit", ("limit",))


class Allowance(msgspec.Struct, frozen=True):
    """The rest that the tightest enabled limit allows in this window."""

    limit: int
    remaining: int
    reset_iso: str


class RateLimited(Exhausted):
    """`allowance`: the limit that was reached, for the headers."""

    default_hint = "wait `retry_after` seconds; the limits are in [limits] in agentlip.toml"

    def __init__(self, allowance: Allowance, which: str, retry_after: float) -> None:
        details = {"limit": allowance.limit, "window": "1s", "scope": which}
        details["retry_after"] = retry_after
        super().__init__(details=details, retry_after=retry_after)
        self.allowance = allowance
        self.which = which


class RateLimiter:
    """A counter for the current second's requests. Used on the event loop only."""

    def __init__(self, settings: LimitSettings, clock: Clock) -> None:
        self._clock = clock
        self._window = 0
        self._reset_iso = ""
        self._tables: list[tuple[str, int, dict[str, int]]] = []
        for name, limit in (
            ("connection", settings.per_connection),
            ("token", settings.per_token),
            ("address", settings.per_address),
            (UNAUTHENTICATED, math.ceil(settings.global_ * UNAUTHENTICATED_SHARE)),
            (GLOBAL, settings.global_),
        ):
            if limit > 0:
                self._tables.append((name, limit, {}))
        self._counts = {name: used_by for name, _, used_by in self._tables}
        self._failures_max = settings.failures_per_address
        self._failures: dict[str, int] = {}
        self._open_max = OPEN_CONNECTIONS * settings.per_connection
        self._opened: dict[str, int] = {}
        self._owing = False

    def charge(
        self,
        connection: str,
        principal_id: str | None,
        address: str,
        cost: int = 1,
        counted: int = 0,
    ) -> Allowance | None:
        """Count a request, or raise RateLimited. Returns None if every limit is off.

        `principal_id`: None without a valid token. `counted`: the cost with which
        this request was counted before, because the cost of a batch is known only after its body
        is read.
        """
        if not self._tables:
            return None
        now_ms = self._now_ms()
        keys = {
            "connection": connection,
            "token": principal_id,
            "address": address,
            UNAUTHENTICATED: "" if principal_id is None else None,
            GLOBAL: "",
        }
        if "address" in self._counts:
            keys["address"] = self._address_key(self._counts["address"], address)
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
        """Count a failed authentication. Raises RateLimited above its address's limit."""
        self._take_for(address, "failures", self._failures_max, self._failures, 1)

    def take_open(self, address: str, cost: int = 1) -> None:
        """Count a request without a token to a route that needs none. Raises RateLimited above
        its address's limit."""
        self._take_for(address, "open", self._open_max, self._opened, cost)

    def _take_for(
        self, address: str, name: str, limit: int, used_by: dict[str, int], cost: int
    ) -> None:
        if not limit:
            return
        now_ms = self._now_ms()
        key = self._address_key(used_by, address)
        used = used_by.get(key, 0)
        if used and used + cost > limit:
            raise self._refusal(name, limit, used, cost, now_ms)
        used_by[key] = used + cost

    def uncount(self, *names: str) -> None:
        """Remove one request from limits that turned out not to apply to it."""
        for name in names:
            used_by = self._counts.get(name)
            if used_by and used_by.get("", 0) > 0:
                used_by[""] -= 1

    def _address_key(self, used_by: dict[str, int], address: str) -> str:
        """Return an address's key: its network for IPv6; a shared one above ADDRESSES_MAX."""
        key = network_of(address) if ":" in address else address
        if key not in used_by and len(used_by) >= ADDRESSES_MAX:
            return _OTHERS
        return key

    def _now_ms(self) -> int:
        """Return the time. Start its window, if another one was before."""
        now_ms = self._clock.now_ms()
        if now_ms // 1000 != self._window:
            self._start_window(now_ms // 1000)
        return now_ms

    def _start_window(self, window: int) -> None:
        self._failures.clear()
        self._opened.clear()
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
        target = max(0, limit - cost)  # usage at which this cost fits
        windows = max(1, -(-(used - target) // limit)) if used > limit else 1
        wait_ms = (self._window + windows) * 1000 - now_ms
        return RateLimited(Allowance(limit, left, self._reset_iso), name, max(wait_ms, 1) / 1000)


def network_of(address: str) -> str:
    """Return an IPv6 address's /64 network, because one client has all of it; an IPv4 address."""
    ip = ip_of(address)
    if ip is None:
        return address
    return str(ip if ip.version == 4 else ipaddress.IPv6Address(int(ip) >> 64 << 64))
