"""Defines a stream's policy, and which declared pattern applies. Pure."""

import random
import re
from collections.abc import Iterable
from fnmatch import translate
from functools import lru_cache
from typing import Literal

import msgspec

from appliance.kernel.blank import is_printable
from appliance.kernel.clock import HOUR_MS
from appliance.kernel.retry import RetrySettings, delay_seconds

OverflowPolicy = Literal["reject", "drop_oldest", "block"]
TtlAction = Literal["drop", "dead"]

WILD = "*"
NAME_MAX = 256
RETRY = RetrySettings(1.0, 60.0, jitter=0.0)  # if `retry` is not set
DELIVERIES_MAX = 25  # with RETRY, an envelope that always fails is a dead letter after 20 minutes


class StreamPolicy(msgspec.Struct, frozen=True):
    """A policy. settings.py explains the fields, except these, which are constant.

    lease_total_ms_max  the longest lease including all its extensions
    dead_max            a stream's dead letters; the oldest are dropped first
    aging_ms            waiting this long raises an envelope's priority by one; 0: never
    """

    lease_seconds: float = 30.0
    lease_total_ms_max: int = 12 * HOUR_MS
    depth_max: int = 100_000
    bytes_max: int = 256 * 1024 * 1024
    overflow_policy: OverflowPolicy = "reject"
    deliveries_max: int = DELIVERIES_MAX
    retry: RetrySettings | None = None
    dead_max: int = 10_000
    ttl_seconds: float = 0.0
    ttl_action: TtlAction = "drop"
    aging_ms: int = 10_000
    durable: bool = False
    rate: float = 0.0

    @property
    def lease_ms(self) -> int:
        return round(self.lease_seconds * 1000)

    def retry_delay_ms(self, attempts: int) -> int | None:
        """Return the milliseconds until an envelope is delivered again after its `attempts`-th
        attempt failed; None when the attempts are used up."""
        if self.deliveries_max and attempts >= self.deliveries_max:
            return None
        return round(delay_seconds(self.retry or RETRY, attempts, random.random()) * 1000)

    @property
    def bare_delay_ms(self) -> int | None:
        """Return the milliseconds to wait after an expired lease, and after a nack that has only an
        id: 0, as the specification says. None if the stream declares a limit or delays, which then
        apply."""
        is_declared = self.retry is not None or self.deliveries_max not in (0, DELIVERIES_MAX)
        return None if is_declared else 0


@lru_cache(maxsize=4096)
def pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern: `*` matches any characters, including slashes; all others match
    themselves."""
    return re.compile(translate(text.replace("[", "[[]").replace("?", "[?]")))


def is_name(text: str) -> bool:
    """Return whether a stream can have this name: printable, without wildcards or empty parts."""
    return (
        0 < len(text) <= NAME_MAX
        and is_printable(text)
        and WILD not in text
        and "//" not in text
        and text[0] != "/"
        and text[-1] != "/"
    )


def is_pattern(text: str) -> bool:
    return WILD in text


def matches(glob: str, name: str) -> bool:
    if WILD not in glob:
        return glob == name
    return pattern(glob).match(name) is not None


def most_specific(globs: Iterable[str], name: str) -> str | None:
    """Return the matching pattern with the most literal characters; the first among equals."""
    best: str | None = None
    for glob in globs:
        if matches(glob, name) and (best is None or _weight(glob) > _weight(best)):
            best = glob
    return best


def _weight(glob: str) -> tuple[int, int]:
    return (WILD not in glob, len(glob) - glob.count(WILD))
