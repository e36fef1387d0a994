"""A lock for greenlets."""

# gevent carries no types.
# mypy: allow-untyped-calls

from collections.abc import Iterator
from contextlib import contextmanager

from gevent.lock import BoundedSemaphore

from appliance.kernel.errors import Unavailable


class GreenletLock(BoundedSemaphore):
    """`with lock:` waits until no other greenlet holds it."""

    def __init__(self) -> None:
        super().__init__(1)

    @contextmanager
    def timeout(self, seconds: float) -> Iterator[None]:
        """Like `with lock:`, but raises Unavailable after `seconds`."""
        if not self.acquire(timeout=seconds):
            raise Unavailable("timed out waiting for another request to finish")
        try:
            yield
        finally:
            self.release()
