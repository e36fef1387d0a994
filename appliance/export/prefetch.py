"""Prefetches items: the next one is made in a thread while the current one is processed.

For command lines, where threads are native. It helps when both sides release the GIL. Measured:
exporting a log without it takes 1.15 to 1.4 times as long.
"""

import queue
import threading
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
_END = object()
_POLL_SECONDS = 0.1


def prefetch(items: Iterator[T]) -> Generator[T, None, None]:
    """The same items, one made in advance. Only the thread uses `items`; it has ended when this
    generator is exhausted or closed. Errors of `items` are raised here."""
    ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(maxsize=1)
    stopped = threading.Event()

    def put(item: Any, error: BaseException | None = None) -> None:
        while not stopped.is_set():
            try:
                ready.put((item, error), timeout=_POLL_SECONDS)
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
