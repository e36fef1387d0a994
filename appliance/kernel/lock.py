"""A lock for greenlets."""

from collections.abc import Iterator
from contextlib import contextmanager

from gevent.lock import BoundedSemaphore

from appliance.kernel.errors import Unavailable


class GreenletLock:
    """`with lock:` waits until no other greenlet holds it."""

    def __init__(self) -> None:
        self._semaphore = BoundedSemaphore(1)

    @contextmanager
    def timeout(self, seconds: float) -> Iterator[None]:
        """Like `with lock:`, but raises Unavailable after `seconds`."""
        if not self._semaphore.acquire(timeout=seconds):
            raise Unavailable("timed out waiting for another request to finish")
        try:
            yield
        finally:
            self._semaphore.release()

    def __enter__(self) -> None:
        self._semaphore.acquire()

    def __exit__(self, *_: object) -> None:
        self._semaphore.release()
