"""Work in two steps, the next piece begun while the one before is being finished."""

from collections.abc import Callable
from typing import Any, TypeVar

import gevent
from gevent.lock import Semaphore

T = TypeVar("T")


class Pipeline:
    """At most `pieces_max` pieces are open; they are delivered in the order of their beginning.

    For one greenlet that begins. What `finish` or `deliver` raises ends that piece alone.
    """

    def __init__(self, pieces_max: int) -> None:
        self._room = Semaphore(pieces_max)
        self._last: Any = None  # the greenlet that finishes the newest piece

    def run(self, begin: Callable[[], Callable[[], T]], deliver: Callable[[T], None]) -> None:
        """`begin()` here and now, as soon as there is room; the rest in a greenlet of its own."""
        self._room.acquire()
        try:
            finish = begin()
        except BaseException:
            self._room.release()
            raise
        self._last = gevent.spawn(self._finish, self._last, finish, deliver)

    def wait(self) -> None:
        """Until all that was begun is delivered."""
        if self._last is not None:
            self._last.join()

    def _finish(self, before: Any, finish: Callable[[], T], deliver: Callable[[T], None]) -> None:
        try:
            result = finish()
            if before is not None:
                before.join()
            deliver(result)
        finally:
            self._room.release()
