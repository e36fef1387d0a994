"""Native threads that read, each over a connection of its own, and the reads that wait for them."""

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from appliance.kernel.batch import Outcome
from appliance.kernel.loop_callbacks import Handoff
from appliance.kernel.reader import Reader
from appliance.kernel.store_errors import QueueFull, translated
from appliance.kernel.threads import NativeThread, SimpleQueue
from appliance.kernel.write_request import Reading

T = TypeVar("T")


class ReaderPool:
    """Used on the loop of `handoff`. The threads start with the first read."""

    def __init__(
        self,
        threads: int,
        waiting_max: int,
        retry_after: float,
        directory: Path,
        open_reader: Callable[[], Reader],
        close_reader: Callable[[Reader], None],
        handoff: Handoff,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._size = threads
        self._waiting_max = waiting_max
        self._retry_after = retry_after
        self._directory = directory
        self._open_reader = open_reader
        self._close_reader = close_reader
        self._handoff = handoff
        self._on_error = on_error
        self._queue: SimpleQueue[Reading[Any] | None] = SimpleQueue()
        self._threads: list[NativeThread] = []
        self.pending = 0  # reads waiting or running

    def begin(self, function: Callable[..., T], args: tuple[Any, ...], full: str) -> Reading[T]:
        """Hand a read to the threads; QueueFull with the message `full` when too many wait."""
        if self.pending >= self._waiting_max + self._size:
            raise QueueFull(full, retry_after=self._retry_after)
        if not self._threads:
            self._threads = [NativeThread(self._run, self._handoff) for _ in range(self._size)]
        self.pending += 1
        reading: Reading[T] = Reading(function, args)
        self._queue.put(reading)
        return reading

    def close(self, timeout_seconds: float) -> bool:
        """End the threads after what waits; False when time ran out."""
        for _ in self._threads:
            self._queue.put(None)
        ended = [thread.join(timeout_seconds) for thread in self._threads]
        return all(ended)

    def _run(self) -> None:
        reader: Reader | None = None
        while (reading := self._queue.get()) is not None:
            try:
                reader = reader or self._open_reader()
                with reader.deadline(reading.is_cancelled):
                    outcome = Outcome(reading.function(reader, *reading.args))
            except sqlite3.Error as error:
                outcome = Outcome(error=translated(error, self._retry_after, self._directory))
            except Exception as error:
                outcome = Outcome(error=error)
            self._handoff.post(self._answer, reading, outcome)
            del reading, outcome  # a result can be large, and the next read far away
        if reader is not None:
            with suppress(sqlite3.Error):
                self._close_reader(reader)

    def _answer(self, reading: Reading[Any], outcome: Outcome) -> None:
        self.pending -= 1
        if outcome.error is not None:
            self._on_error(outcome.error)
        reading.waiter.switch(outcome)
