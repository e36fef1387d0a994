"""Carries calls from native threads to the event loop that owns them.

Native threads (the stores' writers and readers) may touch nothing of gevent but one
thing: a loop's async watcher, whose `send` is safe from anywhere. A Handoff is that
watcher and a queue beside it. Calls run on the loop in the order they were posted,
inside the hub, so they must not block.
"""

import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import gevent
from gevent import monkey

start_thread: Callable[..., int] = monkey.get_original("_thread", "start_new_thread")
allocate_lock: Callable[[], Any] = monkey.get_original("_thread", "allocate_lock")


class Handoff:
    """Bound to the event loop of the greenlet that makes it."""

    def __init__(self) -> None:
        self._calls: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._watcher = gevent.get_hub().loop.async_()
        self._watcher.start(self._run)

    def post(self, function: Callable[..., None], *args: Any) -> None:
        """From any thread: have `function(*args)` called on the loop."""
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
                # The others must hear all the same; gevent prints what went wrong.
                gevent.get_hub().handle_error(function, *sys.exc_info())
