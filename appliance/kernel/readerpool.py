"""Runs reads in native threads, each with its own connection, from a queue."""

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from appliance.kernel.batch import CallOutcome
from appliance.kernel.errors import ApplianceError
from appliance.kernel.loop_callbacks import LoopCallbacks
from appliance.kernel.reader import Reader
from appliance.kernel.store_errors import QueueFull, translate
from appliance.kernel.threads import NativeThread, SimpleQueue
from appliance.kernel.write_request import ReadRequest

T = TypeVar("T")


class ReaderPool:
    """A reader thread pool, used on the `callbacks` loop. Threads start with the first read."""

    def __init__(
        self,
        threads: int,
        waiting_max: int,
        directory: Path,
        open_reader: Callable[[], Reader],
        callbacks: LoopCallbacks,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._size = threads
        self._waiting_max = waiting_max
        self._directory = directory
        self._open_reader = open_reader
        self._callbacks = callbacks
        self._on_error = on_error
        self._queue: SimpleQueue[ReadRequest[Any] | None] = SimpleQueue()
        self._threads: list[NativeThread] = []
        self.pending = 0  # reads waiting or running

    def begin(self, reading: ReadRequest[T]) -> ReadRequest[T]:
        """Queue a read; raise QueueFull if too many wait."""
        if self.pending >= self._waiting_max + self._size:
            raise QueueFull("too many reads in this group are waiting")
        while len(self._threads) < self._size:
            self._threads.append(NativeThread(self._run, self._callbacks))
        self.pending += 1
        self._queue.put(reading)
        return reading

    def close(self, timeout_seconds: float) -> bool:
        """End the threads after the queued reads; False when time ran out."""
        for _ in self._threads:
            self._queue.put(None)
        ended = [thread.join(timeout_seconds) for thread in self._threads]
        return all(ended)

    def _run(self) -> None:
        reader: Reader | None = None
        # At once: reads go on if the file is removed later. After a failure, a read tries again.
        with suppress(sqlite3.Error, ApplianceError, MemoryError):
            reader = self._open_reader()
        while (reading := self._queue.get()) is not None:
            try:
                if reader is not None and reader.files is not None and reader.files.find_change():
                    reader.connection.close()
                    reader = None
                reader = reader or self._open_reader()
                with reader.deadline(reading.is_cancelled):
                    outcome = CallOutcome(reading.function(reader, *reading.args))
            except sqlite3.Error as error:
                outcome = CallOutcome(error=translate(error, self._directory))
            except Exception as error:
                outcome = CallOutcome(error=error)
            self._callbacks.post(self._answer, reading, outcome)
            del reading, outcome  # a result can be large, and the next read may come late
        if reader is not None:
            with suppress(sqlite3.Error):
                reader.connection.close()

    def _answer(self, reading: ReadRequest[Any], outcome: CallOutcome) -> None:
        self.pending -= 1
        if outcome.error is not None:
            self._on_error(outcome.error)
        reading.waiter.switch(outcome)
