"""Work at the same time, a bounded number at once, and a limit in time for what waits.

A crew's work is done in greenlets of the loop: it may wait for sockets and stores.
"""

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
        """Begin `work`; waits while all hands are busy. What it raises is printed by gevent."""
        self._pool.spawn(work, *args)

    def join(self, timeout_seconds: float | None = None) -> bool:
        """Wait for all that runs; False when time ran out."""
        return bool(self._pool.join(timeout_seconds))

    def kill(self) -> None:
        """End what still runs, wherever it waits."""
        self._pool.kill(block=False)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raises TimeoutError inside when the block takes longer, where it waits on the loop."""
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
