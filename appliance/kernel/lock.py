"""One at a time, among greenlets."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from gevent.lock import BoundedSemaphore

from appliance.kernel.errors import Unavailable


class Turn:
    """`with turn:` waits until nobody else is inside."""

    def __init__(self) -> None:
        self._semaphore = BoundedSemaphore(1)

    @property
    def taken(self) -> bool:
        return bool(self._semaphore.locked())

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """The same, for who waits no longer than that; Unavailable then."""
        if not self._semaphore.acquire(timeout=seconds):
            raise Unavailable("somebody else is served first, and for too long")
        try:
            yield
        finally:
            self._semaphore.release()

    def __enter__(self) -> None:
        self._semaphore.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._semaphore.release()
