"""A loop that handles an agent's messages, in order, each at least once."""

import select
import sqlite3
from collections.abc import Callable
from pathlib import Path

from appliance.busfile import messages
from appliance.busfile.file import snapshot, transaction
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


class BusConsumer:
    """Polls for an agent and acks what `handler` has handled.

    When it raises, the batch ends there: an ack of a later message would cover the failed one too.
    The message comes again, so handlers must be idempotent, for example by `message.id`.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        blobs: Path,
        agent: str,
        handler: Callable[[BusMessage], object],
        clock: Clock,
        on_failure: Callable[[BusMessage, Exception], object] | None = None,
    ) -> None:
        """`on_failure` gets what a handler raises; without it, `run` ends with the error."""
        self._connection = connection
        self._blobs = blobs
        self._agent = agent
        self._handler = handler
        self._clock = clock
        self._on_failure = on_failure
        self._interval = PollInterval()

    def run_once(self) -> int:
        """Handles one batch. Returns how many messages were acked."""
        with snapshot(self._connection):
            batch = messages.poll(self._connection, self._agent)
        for handled, stored in enumerate(batch):
            message = messages.with_payload(self._blobs, stored)
            try:
                self._handler(message)
            except Exception as error:
                if self._on_failure is None:
                    raise
                self._on_failure(message, error)
                return handled
            with transaction(self._connection):
                messages.ack(self._connection, self._clock.now_ms(), self._agent, message.seq)
        return len(batch)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Handles messages until `stopped()`, which is called between batches."""
        while not stopped():
            select.select([], [], [], self._interval.after(self.run_once()))
