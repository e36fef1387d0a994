"""Takes turns for long work on the event loop: parsing large requests."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import gevent

from appliance.kernel.clock import Clock
from appliance.kernel.lock import GreenletLock

PIECE_BYTES = 64 * 1024  # smaller bodies are decoded without waiting for a turn
PIECE_SECONDS = 0.005
T = TypeVar("T")
R = TypeVar("R")
_parsing = GreenletLock()


def serve_others() -> None:
    """Let the loop serve sockets and timers once.

    `gevent.sleep(0)` doesn't: gevent runs up to 50 greenlets before it looks at sockets again.
    """
    gevent.sleep(1e-6)


@contextmanager
def piece() -> Iterator[None]:
    """Parse one piece of a large request. Only one request does so at a time, and others are
    served before the next piece. Don't nest."""
    with _parsing:
        try:
            yield
        finally:
            serve_others()


def parse_in_pieces(parse: Callable[[T], R], items: Sequence[T], clock: Clock) -> list[R]:
    """Parse all items, in order. After PIECE_SECONDS, continue by turns with other requests."""
    results: list[R] = []
    _parse_piece(parse, items, results, clock)
    while len(results) < len(items):
        with piece():
            _parse_piece(parse, items, results, clock)
    return results


def _parse_piece(
    parse: Callable[[T], R], items: Sequence[T], results: list[R], clock: Clock
) -> None:
    end = clock.monotonic() + PIECE_SECONDS
    while len(results) < len(items):
        results.append(parse(items[len(results)]))
        if clock.monotonic() >= end:
            return
