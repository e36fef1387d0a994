"""How one stream behaves, and which declared pattern decides it. Pure."""

import re
from collections.abc import Iterable
from fnmatch import translate
from functools import lru_cache
from typing import Literal

import msgspec

Full = Literal["reject", "drop_oldest", "block"]
Expiry = Literal["drop", "dead"]

WILD = "*"
NAME_MAX = 256


class Policy(msgspec.Struct, frozen=True):
    """The rules of one stream; every limit has its number in settings.py."""

    lease_ms: int = 30_000
    lease_total_ms_max: int = 12 * 3_600_000
    depth_max: int = 100_000
    bytes_max: int = 256 * 1024 * 1024
    full: Full = "reject"
    block_ms: int = 5_000
    deliveries_max: int = 0
    backoff_ms: int | None = None
    backoff_ms_max: int = 60_000
    dead_max: int = 10_000
    ttl_ms: int = 0
    ttl_action: Expiry = "drop"
    aging_ms: int = 10_000
    recent_max: int = 10_000
    recent_seconds: float = 600.0
    history_max: int = 20
    durable: bool = False
    rate: float = 0.0
    burst: float = 0.0

    def delay_after(self, failures: int) -> int:
        """Milliseconds before an envelope that failed so often may be delivered again.

        Without a limit on deliveries a plain nack returns at once, as the specification
        says; with one, instant returns would burn the budget in no time.
        """
        first = self.backoff_ms
        if first is None:
            first = 1_000 if self.deliveries_max else 0
        return int(min(first * 2 ** min(max(failures - 1, 0), 30), self.backoff_ms_max))


@lru_cache(maxsize=4096)
def pattern(text: str) -> re.Pattern[str]:
    """`*` stands for any characters, slashes too; everything else for itself."""
    return re.compile(translate(text.replace("[", "[[]").replace("?", "[?]")))


def is_name(text: str) -> bool:
    """May a stream be called that? Printable, no wildcard, no empty part."""
    return (
        0 < len(text) <= NAME_MAX
        and text.isprintable()
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
    """Of the patterns that match, the one with the most literal characters; first of equals."""
    best: str | None = None
    for glob in globs:
        if matches(glob, name) and (best is None or _weight(glob) > _weight(best)):
            best = glob
    return best


def _weight(glob: str) -> tuple[int, int]:
    return (WILD not in glob, len(glob) - glob.count(WILD))
