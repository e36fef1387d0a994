"""Waiting for a condition with a deadline: the only polling that tests do."""

import select
import time
from collections.abc import Callable

SECONDS_MAX = 20.0
LOOK_EVERY_SECONDS = 0.02


def until(
    condition: Callable[[], object], seconds_max: float = SECONDS_MAX, what: str = ""
) -> None:
    """Returns once `condition()` is true; fails if it never is."""
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds_max} s: {what or condition}"
        select.select([], [], [], LOOK_EVERY_SECONDS)
