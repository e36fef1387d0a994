"""Limits the relay's request rates, in fixed windows in memory: a restart forgives earlier
requests.

| limit | requests | window | counted by |
| --- | ---: | --- | --- |
| `relay` | 10,000 | minute | everybody together |
| `requests` | 60 | minute | agent, once its signature is verified |
| `heartbeats` | 12 | minute | agent: two programs that try three times |
| `contacts` | 10 | hour | agent that sends the request |
| `rotations` | 10 | hour | agent that replaces its key |
| `groups` | 10 | hour | agent that makes a group |
| `invitations` | 100 | hour | agent that invites to groups |
| `registrations` | 3 | hour | client address |
| `codes` | 3 | hour | mail address; name; client address |
| `attempts` | 10 | hour | client address |
| `mails` | 100 | hour | everybody together |
"""

from appliance.kernel.clock import HOUR_MS, Clock, iso
from appliance.relay import metrics
from appliance.web.limits import Allowance, RateLimited

MINUTE_MS = 60_000
LIMITS = {
    "relay": (10_000, MINUTE_MS),
    "requests": (60, MINUTE_MS),
    "heartbeats": (12, MINUTE_MS),
    "contacts": (10, HOUR_MS),
    "rotations": (10, HOUR_MS),
    "groups": (10, HOUR_MS),
    "invitations": (100, HOUR_MS),
    "registrations": (3, HOUR_MS),
    "codes": (3, HOUR_MS),
    "attempts": (10, HOUR_MS),
    "mails": (100, HOUR_MS),
}
SUBJECTS_MAX = 100_000  # counted separately, about 200 bytes each; more share one count
OTHERS = "others"


class RelayLimitReached(RateLimited):
    default_message = "the relay's rate limit has been reached"
    default_hint = "wait `retry_after` seconds; docs/reference/relay.md lists the limits"


class RelayLimits:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[tuple[str, str], tuple[int, int]] = {}

    def charge(self, name: str, subject: str = "") -> Allowance:
        """Count one request. Raises RelayLimitReached."""
        limit, window_ms = LIMITS[name]
        now_ms = self._clock.now_ms()
        window = now_ms // window_ms
        key = self._key(name, subject, now_ms)
        counted_window, count = self._counts.get(key, (window, 0))
        if counted_window != window:
            count = 0
        until_ms = (window + 1) * window_ms
        if count >= limit:
            metrics.limited.labels(name).inc()
            allowance = Allowance(limit, 0, iso(until_ms))
            raise RelayLimitReached(allowance, name, (until_ms - now_ms) / 1000)
        self._counts[key] = (window, count + 1)
        return Allowance(limit, limit - count - 1, iso(until_ms))

    def _key(self, name: str, subject: str, now_ms: int) -> tuple[str, str]:
        key = (name, subject)
        if key in self._counts or len(self._counts) < SUBJECTS_MAX:
            return key
        self._counts = {
            (kind, who): (window, count)
            for (kind, who), (window, count) in self._counts.items()
            if window == now_ms // LIMITS[kind][1]
        }
        return key if len(self._counts) < SUBJECTS_MAX else (name, OTHERS)
