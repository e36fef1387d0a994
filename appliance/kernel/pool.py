"""A bounded pool of greenlets, and time limits for code that waits on the event loop."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gevent
from gevent.pool import Pool


class GreenletPool:
    """At most `size` pieces of work at a time."""

    def __init__(self, size: int) -> None:
        self._pool = Pool(size)

    @property
    def free(self) -> int:
        return int(self._pool.free_count())

    def spawn(self, work: Callable[..., None], *args: Any) -> None:
        """Run `work` in a greenlet; waits while the pool is full. gevent prints its errors."""
        self._pool.spawn(work, *args)

    def join(self, timeout_seconds: float | None = None) -> bool:
        """Wait for all running work; False when time ran out."""
        return bool(self._pool.join(timeout_seconds))

    def kill(self) -> None:
        """Kill all running work."""
        self._pool.kill(block=False)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeoutError inside the block when it waits longer than `seconds` on the loop."""
    timer = gevent.Timeout(seconds)
    timer.start()
    try:
        yield
    except gevent.Timeout as raised:
        if raised is not timer:
            raise
        raise TimeoutError from None
    finally:
        timer.close()
