"""The only module that reads the time. Everything else is passed a Clock."""

import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Clock(Protocol):
    def now_ms(self) -> int:
        """Return the wall time in milliseconds since 1970 UTC, which may jump in both
        directions."""

    def monotonic(self) -> float:
        """Return seconds that never go backwards. Only differences have a meaning."""

    def uptime(self) -> float:
        """Return seconds like `monotonic`, including time in which the machine was suspended."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def uptime(self) -> float:
        return time.clock_gettime(_UPTIME)


# macOS has no CLOCK_BOOTTIME; its CLOCK_MONOTONIC counts suspended time.
_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def iso(ms: int) -> str:
    """Format as `2026-02-04T23:30:45.123Z`: the one timestamp format (hub spec §3.5)."""
    seconds, rest = divmod(ms, 1000)
    return f"{_second(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def utc(text: str) -> str:
    """Convert an ISO 8601 date or time to the format that `iso` writes. UTC without a zone.
    Raise ValueError if invalid."""
    moment = datetime.fromisoformat(text)
    try:
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError as error:
        raise ValueError(str(error)) from None
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
