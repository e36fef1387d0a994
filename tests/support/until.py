"""Waiting for a condition with a deadline: the only polling that tests do."""

import select
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import gevent

T = TypeVar("T")
SECONDS_MAX = 60.0  # only a failure takes as long, also on a slow machine
POLL_SECONDS = 0.02
BLOCK = partial(select.select, [], [], [])


def until(
    condition: Callable[[], T],
    seconds_max: float = SECONDS_MAX,
    what: str = "",
    pause_seconds: float = POLL_SECONDS,
    sleep: Callable[[float], object] = BLOCK,
) -> T:
    """What `condition` answers once that is true; fails with `what` if it never is."""
    deadline = time.monotonic() + seconds_max
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not within {seconds_max:g} s: {what or condition}"
        sleep(pause_seconds)
    return answer


# The same for a test whose own greenlets must run meanwhile.
gevent_until = partial(until, pause_seconds=0.001, sleep=gevent.sleep)
