"""Wraps gevent's bounded greenlet pool, and limits the time for code that waits on the event
loop."""

from collections.abc import Iterator
from contextlib import contextmanager

import gevent
from gevent.pool import Pool

GreenletPool = Pool


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError inside the block when the block waits longer than `seconds` on the
    loop."""
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
