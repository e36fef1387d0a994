"""Runs reads in native threads, each with its own connection, from a queue."""

import sqlite3
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from gevent.event import Event

from appliance.kernel.batch import CallOutcome, end_cursors
from appliance.kernel.errors import ApplianceError
from appliance.kernel.loop_callbacks import LoopCallbacks
from appliance.kernel.reader import Reader
from appliance.kernel.store_errors import QueueFull, translate
from appliance.kernel.store_files import accept_any_text
from appliance.kernel.threads import NativeThread, SimpleQueue
from appliance.kernel.write_request import ReadRequest

T = TypeVar("T")
Inbox = SimpleQueue[ReadRequest[Any] | None]


class ReaderPool:
    """A reader thread pool, used on the `callbacks` loop.

    A thread starts when a read finds no idle one: each has its own connection, with page cache and
    schema. The thread that was idle for the shortest time is next, so that one client's reads use
    one warm cache.
    """

    def __init__(
        self,
        threads: int,
        waiting_max: int,
        directory: Path,
        open_reader: Callable[[], Reader],
        can_open: Callable[[], bool],
        callbacks: LoopCallbacks,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._size = threads
        self._waiting_max = waiting_max
        self._directory = directory
        self._open_reader = open_reader
        self._can_open = can_open
        self._callbacks = callbacks
        self._on_error = on_error
        self._inboxes: list[Inbox] = []
        self._idle: list[Inbox] = []  # the last one used is at the end
        self._waiting: deque[ReadRequest[Any]] = deque()
        self._threads: list[NativeThread] = []
        self._drained = Event()  # set when a read leaves none pending
        self.pending = 0  # reads waiting or running

    def begin(self, reading: ReadRequest[T]) -> ReadRequest[T]:
        """Start a read, or queue it while all threads are busy; raise QueueFull if too many
        wait."""
        if self.pending >= self._waiting_max + self._size:
            raise QueueFull("too many reads in this group are waiting")
        if not self._idle and (not self._threads or self._may_grow()):
            self._start_thread()
        self.pending += 1
        self._drained.clear()
        if self._idle:
            self._idle.pop().put(reading)
        else:
            self._waiting.append(reading)
        return reading

    def _may_grow(self) -> bool:
        """Return whether another thread can be started: after the file's removal, only threads
        that opened the file before can read on."""
        return len(self._threads) < self._size and self._can_open()

    def _start_thread(self) -> None:
        inbox: Inbox = SimpleQueue()
        self._threads.append(NativeThread(partial(self._run, inbox), self._callbacks))
        self._inboxes.append(inbox)
        self._idle.append(inbox)

    def close(self, timeout_seconds: float) -> bool:
        """End the threads after all reads; False when time ran out. No thread ends before: the last
        connection removes the log, and a thread that has yet to open one would miss it."""
        if self.pending and not self._drained.wait(timeout_seconds):
            timeout_seconds = 0
        for inbox in self._inboxes:
            inbox.put(None)
        ended = [thread.join(timeout_seconds) for thread in self._threads]
        return all(ended)

    def _run(self, inbox: Inbox) -> None:
        reader: Reader | None = None
        # At once: reads go on if the file is removed later. After a failure, a read tries again.
        with suppress(sqlite3.Error, ApplianceError, MemoryError):
            reader = self._open_reader()
        reading = inbox.get()
        while reading is not None:
            try:
                if reader is not None and reader.files is not None and reader.files.find_change():
                    reader.connection.close()
                    reader = None
                reader = reader or self._open_reader()
                with reader.deadline(reading.is_cancelled):
                    outcome = CallOutcome(_call(reading, reader))
            except sqlite3.Error as error:
                outcome = CallOutcome(error=translate(error, self._directory))
            except Exception as error:
                outcome = CallOutcome(error=error)
            end_cursors(outcome.error)
            following = self._take_waiting()
            self._callbacks.post(self._answer, reading, outcome, None if following else inbox)
            del reading, outcome  # a result can be large, and the next read may come late
            reading = following or inbox.get()
        if reader is not None:
            with suppress(sqlite3.Error):
                reader.connection.close()

    def _answer(self, reading: ReadRequest[Any], outcome: CallOutcome, inbox: Inbox | None) -> None:
        self.pending -= 1
        if not self.pending:
            self._drained.set()
        if outcome.error is not None:
            self._on_error(outcome.error)
        if inbox is not None:
            if (following := self._take_waiting()) is not None:
                inbox.put(following)
            else:
                self._idle.append(inbox)
        reading.waiter.switch(outcome)

    def _take_waiting(self) -> ReadRequest[Any] | None:
        try:
            return self._waiting.popleft()
        except IndexError:  # another thread may have been faster
            return None


def _call(reading: ReadRequest[Any], reader: Reader) -> Any:
    try:
        return reading.function(reader, *reading.args)
    except sqlite3.OperationalError as error:
        if "decode to UTF-8" not in str(error):
            raise
        accept_any_text(reader.connection)
        return reading.function(reader, *reading.args)
