"""Native threads, started and joined from the event loop.

In the server the standard modules are patched, so `threading.Thread` would be a greenlet. A store
needs native threads because SQLite blocks. SimpleQueue in `_queue` is written in C and is not
patched.
"""

from _queue import SimpleQueue as SimpleQueue
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import gevent
from gevent.event import Event

from appliance.kernel.loop_callbacks import LoopCallbacks, start_thread

T = TypeVar("T")
TURN_ITEMS = 100  # cheap items, of some microseconds each


class NativeThread:
    """A thread that runs `body`. `join` waits on the loop of `callbacks`."""

    def __init__(self, body: Callable[[], None], callbacks: LoopCallbacks) -> None:
        self._body = body
        self._callbacks = callbacks
        self._ended = Event()
        self.alive = True
        start_thread(self._run)

    def join(self, timeout_seconds: float) -> bool:
        """Wait on the loop; return False when the thread still runs."""
        return bool(self._ended.wait(timeout_seconds))

    def _run(self) -> None:
        try:
            self._body()
        except BaseException as error:
            self.error = error
        finally:
            self.alive = False
            self._callbacks.post(self._ended.set)


def yield_to_loop() -> None:
    """Let other greenlets that are ready run."""
    gevent.sleep(0)


def in_turns(items: Iterable[T], size: int = TURN_ITEMS) -> Iterator[T]:
    """Iterate over a copy of the items, with an event loop turn after each `size` items."""
    for index, item in enumerate(list(items), 1):
        yield item
        if index % size == 0:
            yield_to_loop()


def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Run `function(*args)` in a native thread. For file access, which would block the loop."""
    result, error = gevent.get_hub().threadpool.apply(_attempt, (function, args))
    if error is not None:
        raise error  # here, because the pool prints exceptions from its threads
    return result  # type: ignore[no-any-return]


def _attempt(
    function: Callable[..., T], args: tuple[Any, ...]
) -> tuple[T | None, Exception | None]:
    try:
        return function(*args), None
    except Exception as error:
        return None, error
