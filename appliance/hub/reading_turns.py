"""Gives large reads turns on the event loop.

Each caller reads one piece at a time. All callers without a token count as one, and so share one
caller's reading rate. The bytes are limited too, so that repeated log replays leave time for other
requests.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

import gevent

from appliance.kernel.auth import ANONYMOUS, Principal
from appliance.kernel.clock import Clock
from appliance.kernel.lock import GreenletLock
from appliance.kernel.token_bucket import TokenBucket

# In P10 the server uses a third of a core, probes included, while clients read this much.
ANONYMOUS_BYTES_PER_SECOND = 16 * 1024 * 1024
ANONYMOUS_BYTES_BURST = 2 * ANONYMOUS_BYTES_PER_SECOND


class Turns:
    """Used on one event loop. `piece_bytes` is what a piece usually has at most."""

    def __init__(
        self, clock: Clock, piece_bytes: int, sleep: Callable[[float], None] = gevent.sleep
    ) -> None:
        self._clock = clock
        self._piece_bytes = piece_bytes
        self._sleep = sleep
        self._locks: WeakValueDictionary[str, GreenletLock] = WeakValueDictionary()
        self._bytes = TokenBucket(
            ANONYMOUS_BYTES_PER_SECOND, ANONYMOUS_BYTES_BURST, clock.monotonic()
        )

    @contextmanager
    def turn(self, who: Principal) -> Iterator[Callable[[int], None]]:
        """Wait for this caller's turn. Call the result with the size that was read. Don't wait
        for the client within the turn."""
        lock = self._locks.setdefault(who.id, GreenletLock())
        with lock:
            if who is not ANONYMOUS:
                yield lambda _size: None
                return
            while wait := self._bytes.charge(self._piece_bytes, self._clock.monotonic()):
                self._sleep(wait)
            read = 0

            def charge(size: int) -> None:
                nonlocal read
                read += size

            try:
                yield charge
            finally:
                self._bytes.give_back(self._piece_bytes - read, self._clock.monotonic())
