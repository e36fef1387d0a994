"""Waiting for an agent's messages."""

import select
import sqlite3
from collections.abc import Callable

from appliance.busfile import messages
from appliance.busfile.file import snapshot
from appliance.busfile.messages import BusMessage
from appliance.kernel.clock import Clock

ACTIVE_SECONDS, IDLE_SECONDS, FACTOR = 0.2, 2.0, 1.5


class PollInterval:
    """Short while messages come, longer with each poll without one."""

    def __init__(self) -> None:
        self.seconds = ACTIVE_SECONDS

    def after(self, count: int) -> float:
        """The wait after a poll that returned `count` messages."""
        self.seconds = ACTIVE_SECONDS if count else min(self.seconds * FACTOR, IDLE_SECONDS)
        return self.seconds


def poll(
    connection: sqlite3.Connection,
    clock: Clock,
    agent: str,
    limit: int,
    seconds: float,
    pause: Callable[[float], object] = lambda seconds: select.select([], [], [], seconds),
) -> list[BusMessage]:
    """`messages.poll`, each time in a snapshot, until there is a message or the time is over."""
    deadline = clock.monotonic() + seconds
    interval = PollInterval()
    while True:
        with snapshot(connection):
            batch = messages.poll(connection, agent, limit)
        left = deadline - clock.monotonic()
        if batch or left <= 0:
            return batch
        pause(min(left, interval.after(0)))
