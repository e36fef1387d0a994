"""Ids that sort in the order they were made, and secrets that don't.

An id is a prefix and a ULID (github.com/ulid/spec): 48 bits of milliseconds and
80 random bits in Crockford's base 32, 26 characters. Paging and retopic compare
ids, so they rise strictly: within one millisecond, after the clock went back, and after
a restart that found ids from the future, each id is the last one plus a small number.
"""

import os
import random
from functools import lru_cache

from appliance.kernel.clock import Clock

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
ULID_LENGTH = 26
TOKEN_PREFIX = "agl_"
_PAIRS = [a + b for a in ALPHABET for b in ALPHABET]
_RANDOM_BITS = 80
_TO_DIGITS = str.maketrans(ALPHABET, "0123456789ABCDEFGHIJKLMNOPQRSTUV")  # as in `int`


class IdFactory:
    """Makes strictly increasing ids. Not thread-safe: one factory per thread.

    Ids are not secret. Their random bits come from a generator with a random seed, because the
    system's generator would take longer than everything else.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.last = 0  # the newest id's number, for another factory's `follow`
        self._random = random.Random().getrandbits

    def seed(self, last_id: str | None) -> None:
        """Make ids that sort above `last_id`. An id that is not a ULID is ignored."""
        self.follow(ulid_value(last_id or "") or 0)

    def follow(self, last: int) -> None:
        """Make ids above an id from another factory, given by its number."""
        if last > self.last:
            self.last = last

    def new(self, prefix: str) -> str:
        value = self._clock.now_ms() << _RANDOM_BITS
        if value <= self.last:
            value = self.last + 1 + self._random(16)
        else:
            value |= self._random(_RANDOM_BITS - 1)
        self.last = value
        return prefix + encode_ulid(value)


def encode_ulid(value: int) -> str:
    high, low = divmod(value, 1 << 30)
    return _encode_high(high) + _PAIRS[low >> 20] + _PAIRS[low >> 10 & 1023] + _PAIRS[low & 1023]


@lru_cache(maxsize=16)
def _encode_high(high: int) -> str:
    """Return the first 20 characters, which ids from one millisecond mostly share."""
    return "".join([_PAIRS[high >> shift & 1023] for shift in range(90, -1, -10)])


def ulid_value(text: str) -> int | None:
    """Return the number inside `text`, with or without a prefix; None without a number."""
    body = text.rpartition("_")[2]
    if len(body) != ULID_LENGTH or body[0] > "7" or not set(ALPHABET).issuperset(body):
        return None
    return int(body.translate(_TO_DIGITS), 32)


def secret_token() -> str:
    """Return 256 bits from the system's generator, 64 hexadecimal characters."""
    return os.urandom(32).hex()


def prefixed_token() -> str:
    """Return a secret with a prefix that secret scanners can detect."""
    return TOKEN_PREFIX + secret_token()


def random_id() -> str:
    """Return 128 bits, 32 hexadecimal characters: instances, requests, epochs."""
    return os.urandom(16).hex()
