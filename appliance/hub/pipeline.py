"""Runs two steps as a pipeline: the next piece begins while the previous one finishes."""

from collections.abc import Callable
from typing import Any, TypeVar

import gevent
from gevent.lock import Semaphore

T = TypeVar("T")


class Pipeline:
    """At most `pieces_max` pieces are in progress, and are delivered in starting order.

    Only one greenlet may call `run`. An error in `finish` or `deliver` affects only that piece.
    """

    def __init__(self, pieces_max: int) -> None:
        self._slots = Semaphore(pieces_max)
        self._last: Any = None  # the greenlet that finishes the newest piece

    def run(self, begin: Callable[[], Callable[[], T]], deliver: Callable[[T], None]) -> None:
        """Call `begin()` as soon as a slot is free, then finish and deliver in another greenlet."""
        self._slots.acquire()
        try:
            finish = begin()
        except BaseException:
            self._slots.release()
            raise
        self._last = gevent.spawn(self._finish, self._last, finish, deliver)

    def wait(self) -> None:
        """Wait until everything that began is delivered."""
        if self._last is not None:
            self._last.join()

    def _finish(self, before: Any, finish: Callable[[], T], deliver: Callable[[T], None]) -> None:
        try:
            result = finish()
            if before is not None:
                before.join()
            deliver(result)
        finally:
            self._slots.release()
