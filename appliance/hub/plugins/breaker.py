"""Stops a plugin that keeps failing. Pure: time is an argument.

closed ──failures in a row──▶ open ──pause over──▶ half-open ──success──▶ closed
                               ▲                       │
                               └──failure: twice as long
"""

from typing import Literal

State = Literal["closed", "open", "half-open"]


class Breaker:
    def __init__(self, failures_max: int, pause_seconds: float, pause_seconds_max: float) -> None:
        self._failures_max = failures_max
        self._first_pause = pause_seconds
        self._longest_pause = pause_seconds_max
        self._failures = 0
        self._pause = 0.0  # of the pause that runs or ran last; 0 while closed
        self._until = 0.0

    def state(self, now: float) -> State:
        if not self._pause:
            return "closed"
        return "open" if now < self._until else "half-open"

    def seconds_left(self, now: float) -> float:
        return max(0.0, self._until - now) if self._pause else 0.0

    def succeeded(self) -> None:
        self._failures = 0
        self._pause = 0.0

    def failed(self, now: float, at_once: bool = False) -> bool:
        """True when a pause begins with this failure; with `at_once` the first is enough."""
        self._failures += 1
        if self._pause:
            if now < self._until:
                return False
            self._pause = min(self._longest_pause, 2 * self._pause)
        elif at_once or self._failures >= self._failures_max:
            self._pause = self._first_pause
        else:
            return False
        self._until = now + self._pause
        return True
