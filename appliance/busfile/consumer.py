"""Waits for messages. Each lookup uses a new connection: the file may have been replaced."""

from collections.abc import Callable, Iterator
from contextlib import closing

from appliance.busfile import messages
from appliance.busfile.file import BusPaths, connect, sleep, snapshot
from appliance.busfile.messages import BusMessage
from appliance.kernel.clock import Clock

ACTIVE_SECONDS, IDLE_SECONDS, FACTOR = 0.2, 2.0, 1.5


class PollInterval:
    """Short while messages come, longer with each poll without one."""

    def __init__(self) -> None:
        self.seconds = ACTIVE_SECONDS

    def after(self, count: int) -> float:
        """Return the wait after a poll that returned `count` messages."""
        self.seconds = ACTIVE_SECONDS if count else min(self.seconds * FACTOR, IDLE_SECONDS)
        return self.seconds


def poll(
    paths: BusPaths,
    clock: Clock,
    agent: str,
    limit: int,
    seconds: float,
    pause: Callable[[float], object] = sleep,
) -> list[BusMessage]:
    """Call `messages.poll`, each time in a snapshot, until there is a message or the time is
    over."""
    deadline = clock.monotonic() + seconds
    interval = PollInterval()
    while True:
        with closing(connect(paths)) as connection, snapshot(connection):
            batch = messages.poll(connection, paths.blobs, agent, limit)
        left = deadline - clock.monotonic()
        if batch or left <= 0:
            return batch
        pause(min(left, interval.after(0)))


def follow(
    paths: BusPaths, agent: str | None, after: int, pause: Callable[[float], object] = sleep
) -> Iterator[BusMessage]:
    """Yield messages after a number, for the agent or all, until `pause` raises."""
    interval = PollInterval()
    while True:
        with closing(connect(paths)) as connection, snapshot(connection):
            batch = messages.poll(connection, paths.blobs, agent, after=after)
        for message in batch:
            after = message.seq
            yield message
        seconds = interval.after(len(batch))
        pause(0 if batch else seconds)
