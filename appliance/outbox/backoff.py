"""How long a send waits for its next attempt. Pure."""

from typing import Protocol


class Pace(Protocol):
    """The settings it is made of."""

    @property
    def backoff_first_ms(self) -> int: ...
    @property
    def backoff_factor(self) -> float: ...
    @property
    def backoff_max_ms(self) -> int: ...
    @property
    def backoff_jitter(self) -> float: ...
    @property
    def retry_after_max_ms(self) -> int: ...


def pause_ms(failures: int, chance: float, pace: Pace, retry_after_seconds: float | None) -> int:
    """Milliseconds after the `failures`-th failure; `chance` is a random number in [0, 1).

    The doubled pause is spread by the jitter to both sides. What the receiver asked for is
    the least, within reason, and is spread upwards only: nobody comes before that time, and
    not everybody at it.
    """
    steps = min(max(failures, 1) - 1, 64)
    doubled = min(pace.backoff_first_ms * pace.backoff_factor**steps, pace.backoff_max_ms)
    pause = doubled * (1 + pace.backoff_jitter * (2 * chance - 1))
    if retry_after_seconds is not None and retry_after_seconds > 0:
        asked = min(retry_after_seconds * 1000, pace.retry_after_max_ms)
        pause = max(pause, asked * (1 + pace.backoff_jitter * chance))
    return max(1, int(pause))
