"""One at a time, among greenlets."""

from types import TracebackType

from gevent.lock import BoundedSemaphore


class Turn:
    """`with turn:` waits until nobody else is inside."""

    def __init__(self) -> None:
        self._semaphore = BoundedSemaphore(1)

    @property
    def taken(self) -> bool:
        return bool(self._semaphore.locked())

    def __enter__(self) -> None:
        self._semaphore.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._semaphore.release()
