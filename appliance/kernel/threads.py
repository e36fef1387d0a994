"""Threads of the operating system, started and joined from the event loop.

Under the server the standard modules are patched, so that `threading.Thread` would be a
greenlet. A store needs real threads: SQLite blocks. Python's SimpleQueue in `_queue` is
written in C and stays native.
"""

from _queue import SimpleQueue as SimpleQueue
from collections.abc import Callable
from typing import Any, TypeVar

import gevent
from gevent.event import Event

from appliance.kernel.loop_callbacks import Handoff, start_thread

T = TypeVar("T")


class NativeThread:
    """Runs `body` at once. Its end is told to the loop through `handoff`."""

    def __init__(self, body: Callable[[], None], handoff: Handoff) -> None:
        self._body = body
        self._handoff = handoff
        self._ended = Event()
        self.error: BaseException | None = None
        self.alive = True
        start_thread(self._run, ())

    def join(self, timeout_seconds: float) -> bool:
        """Waits on the loop; False when the thread still runs."""
        return bool(self._ended.wait(timeout_seconds))

    def _run(self) -> None:
        try:
            self._body()
        except BaseException as error:
            self.error = error
        finally:
            self.alive = False
            self._handoff.post(self._ended.set)


def yield_to_loop() -> None:
    """Let every other greenlet that is ready run once."""
    gevent.sleep(0)


def in_thread(function: Callable[..., T], *args: Any) -> T:
    """`function(*args)` in a native thread; the loop goes on meanwhile. For files, which block."""
    return gevent.get_hub().threadpool.apply(function, args)  # type: ignore[no-any-return]
