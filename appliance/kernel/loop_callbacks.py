"""Runs calls from native threads on the event loop.

Native threads (store writers and readers) must not use gevent, except for `send` on a loop's async
watcher, which is thread-safe. A LoopCallbacks is such a watcher with a queue. Calls run on the loop
in posting order, inside gevent's hub, so calls must not block.
"""

import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import gevent
from gevent import monkey

from appliance.kernel.errors import OutOfMemory

_start_thread: Callable[..., int] = monkey.get_original("_thread", "start_new_thread")
allocate_lock: Callable[[], Any] = monkey.get_original("_thread", "allocate_lock")


def start_thread(body: Callable[[], None]) -> None:
    """Run `body` in a new native thread. Raises OutOfMemory."""
    try:
        _start_thread(body, ())
    except RuntimeError:
        raise OutOfMemory from None


class LoopCallbacks:
    """A queue of calls, bound to the event loop that its creating greenlet runs on."""

    def __init__(self) -> None:
        self._calls: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._watcher = gevent.get_hub().loop.async_()
        self._watcher.start(self._run)

    def post(self, function: Callable[..., None], *args: Any) -> None:
        """Call `function(*args)` on the loop. Thread-safe."""
        self._calls.append((function, args))
        self._watcher.send()

    def close(self) -> None:
        self._run()
        self._watcher.stop()
        self._watcher.close()

    def _run(self) -> None:
        while self._calls:
            function, args = self._calls.popleft()
            try:
                function(*args)
            except Exception:
                # Later calls must still run; gevent prints the error.
                gevent.get_hub().handle_error(function, *sys.exc_info())
