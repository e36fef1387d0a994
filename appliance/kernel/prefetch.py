"""Reading ahead: the next item is made in a thread while this one is worked on.

For command lines, whose threads are the system's; worth it where both sides leave the GIL.
"""

import queue
import threading
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
_END = object()
_LOOK_SECONDS = 0.1


def ahead(items: Iterator[T]) -> Generator[T, None, None]:
    """The same items, one made in advance. Only the thread touches `items`; it has ended when
    this generator is exhausted or closed. What `items` raises is raised here."""
    ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(maxsize=1)
    stopped = threading.Event()

    def put(item: Any, error: BaseException | None = None) -> None:
        while not stopped.is_set():
            try:
                ready.put((item, error), timeout=_LOOK_SECONDS)
                return
            except queue.Full:
                continue

    def make() -> None:
        try:
            for item in items:
                put(item)
                if stopped.is_set():
                    return
            put(_END)
        except BaseException as error:
            put(_END, error)

    thread = threading.Thread(target=make, name="ahead", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if item is _END:
                return
            yield item
    finally:
        stopped.set()
        thread.join()
