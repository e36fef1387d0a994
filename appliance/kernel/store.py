"""One SQLite file: many readers, one writer, group commit.

`write` passes a function to the writer and waits. The writer runs all waiting writes as one batch
(`batch.py`), and never waits for more. The outcome returns to the event loop, which publishes to
the feed first and replies afterwards. So when a caller has its reply, every live subscription
already has the event.

`read` runs a function in one of a few native threads, on a read-only connection. `read_slow` uses
other threads, so that an expensive read delays no other. The read stops when its client
disconnects.

A full disk refuses writes until there is space again, while reads go on. A damaged file stops the
store and leaves a marker file, until the doctor clears the store.

With `store.read_only` every write is refused, so the writer opens no file, which can't change.
"""

import os
import sqlite3
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from appliance.kernel import caller
from appliance.kernel.batch import BatchRunner, Call, CallOutcome, Tx
from appliance.kernel.checkpointer import Checkpointer
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from appliance.kernel.loop_callbacks import LoopCallbacks
from appliance.kernel.metrics import counter, histogram
from appliance.kernel.ownership import open_own
from appliance.kernel.reader import STEPS_BETWEEN_CHECKS, Reader, open_connection
from appliance.kernel.readerpool import ReaderPool
from appliance.kernel.readlimit import STEPS_BETWEEN_CHECKS as STEPS_SLOW
from appliance.kernel.result_cache import ResultCache
from appliance.kernel.store_declaration import declaration_of, open_shared
from appliance.kernel.store_errors import (
    QueueFull,
    StoreAbsent,
    StoreBusy,
    StoreClosed,
    StoreDetached,
    StoreFull,
    StoreReadOnly,
    StoreSuspect,
    StoreSuspended,
    free_bytes,
    translate,
)
from appliance.kernel.store_files import StoreFiles, suspect_marker
from appliance.kernel.wakeup import Wakeup
from appliance.kernel.write_request import ReadRequest, WriteRequest
from appliance.kernel.writer import (
    CatchUp,
    StoreSettings,
    Writer,
    empty_wal,
    file_bytes,
    move_wal,
    vacuum,
)
from appliance.kernel.writerchild import WriterConfig
from appliance.kernel.writerprocess import StoreWriter, WriterProcess
from appliance.kernel.writerthread import WriterThread

QUEUE_MAX = 2000  # writes that may wait for the writer; 503 above
FULL_SECONDS = 1.0  # a store that was full refuses writes for this long
READ_SECONDS_MAX = 10.0  # a longer read is interrupted
CHECKPOINT_JOBS = 50  # writes between two WAL checkpoints
WAL_BYTES_TRUNCATE = 64 * 1024 * 1024  # a longer WAL is truncated once empty
STALL_SECONDS_MAX = 5.0  # a writer without progress for this long refuses new writes
SLOW_READ_QUEUE_MAX = 32  # expensive reads that may wait; 503 above
READERS = 2  # native read threads share the interpreter, so more gain nothing
SLOW_READERS = 2  # native threads for expensive reads (searches, scans)
READ_QUEUE_MAX = 1000  # reads that may wait; 503 above
T = TypeVar("T")

BATCH_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_batches = histogram("store_batch_jobs", "Writes in one commit", ("store",), BATCH_ROWS)
_commit_seconds = histogram(
    "store_batch_seconds", "Time from a batch's first write to its reply", ("store",)
)
_problems = counter(
    "store_trouble_total", "Failed reads and writes, by error code", ("store", "code")
)


class Store:
    """A store, bound to the event loop that its creating greenlet runs on."""

    def __init__(
        self,
        name: str,
        path: Path,
        settings: StoreSettings,
        clock: Clock,
        log: Log,
        publish: Callable[[list[Any]], None] = lambda _: None,
        runner: type[BatchRunner] = BatchRunner,
        writers: WriterProcess | None = None,
        restarted: Callable[[], None] = lambda: None,
        catch_up: CatchUp | None = None,
    ) -> None:
        """Open the store. `writers` is the process that writes; None: a thread in this process
        writes, for the courier, tools and tests. `restarted` is called after that process restarts,
        when committed writes may not have been published. Tests replace `runner` to inject faults.
        `catch_up` is work that follows the writes."""
        self.name = name
        self.path = path
        self.settings = settings
        self._clock = clock
        self.log = log
        self._publish = publish
        self._callbacks = LoopCallbacks()
        self._pending = 0
        self._closed: StoreClosed | None = None
        self._shared = declaration_of(name).shared
        suspect = StoreSuspect(details={"store": name})
        self._suspect = suspect if suspect_marker(path).exists() else None
        self._suspended: StoreSuspended | None = None
        self._files = StoreFiles(path)
        self._detached: StoreDetached | None = None
        self._full_until = float("-inf")
        self._full: StoreFull | None = None  # why the last write was refused
        self._was_low = False  # whether the disk had too little space then
        self._busy_since: float | None = None
        self._jobs_in_wal = 0
        self._checkpoint_due = Wakeup()  # set when enough was written for `checkpoint`
        self.checkpointer = Checkpointer(self.checkpoint, self._checkpoint_due, clock, log)
        self._reads = self._pool(READERS, READ_QUEUE_MAX, STEPS_BETWEEN_CHECKS)
        self._slow_reads = self._pool(SLOW_READERS, SLOW_READ_QUEUE_MAX, STEPS_SLOW)
        self._results = ResultCache(self._files)
        self._observe_jobs = _batches.labels(name).observe
        self._observe_seconds = _commit_seconds.labels(name).observe
        self._writers = writers
        self._writer: WriterThread | StoreWriter
        if writers is None or settings.read_only:
            writer = Writer(name, path, settings, clock, log, runner, catch_up)
            self._writer = WriterThread(writer, self._callbacks, self._deliver)
        else:
            config = WriterConfig(name, str(path.absolute()), settings, catch_up)
            self._writer = writers.open(config, self._deliver, restarted)

    # -- writing -----------------------------------------------------------------

    def write(self, function: Callable[..., T], *args: Any) -> T:
        """Run `function(tx, *args)` in the writer and commit; returns its result.

        Raises the function's error, or an Unavailable with the reason why nothing could be
        stored. In both cases nothing is stored.
        """
        result: T = self.write_many([(function, args)])[0].unwrap()
        return result

    def write_many(self, calls: Sequence[Call]) -> list[CallOutcome]:
        """Run all calls in order, in one or more transactions; returns an outcome for each.

        Raises Unavailable if none was accepted. A failing call does not affect the others.
        """
        return self.begin(calls).wait()

    def write_alone(self, function: Callable[..., T], *args: Any) -> T:
        """Write like `write`, in a transaction without other writes: for a change that takes long,
        or that SQLite may interrupt, which undoes the whole transaction. Other writes wait."""
        result: T = self.begin([(function, args)], alone=True).wait()[0].unwrap()
        return result

    def begin(self, calls: Sequence[Call], *, alone: bool = False) -> WriteRequest:
        """Begin writes like `write_many`, but return at once; the result's `wait` returns the
        outcomes.

        Calls run in the order in which they began. `alone`: in separate transactions.
        """
        self._admit(len(calls))
        request = WriteRequest(calls, alone=alone, is_stalled=self._is_stalled)
        self._writer.submit(request)
        self._pending += len(calls)
        if self._busy_since is None:
            self._busy_since = self._clock.monotonic()
        return request

    def _admit(self, jobs: int) -> None:
        full = self._full if self._full_until > self._clock.monotonic() else None
        refusal = self._closed or self._suspended or self._suspect or self._detached or full
        if refusal is not None:
            raise refusal.with_traceback(None)
        if self.settings.read_only:
            raise StoreReadOnly
        if self._pending + jobs > QUEUE_MAX and self._pending:
            raise QueueFull
        if self._is_stalled():
            raise StoreBusy("the writer has not finished a batch for too long")

    def suspend(self, error: StoreSuspended) -> None:
        """Refuse every write from now on, because the file is damaged."""
        self._suspended = error

    def seed_ids(self, last_id: str | None) -> None:
        """Make new ids sort above `last_id`. Call before the first write."""
        if last_id is not None:
            self._writer.ids.seed(last_id)

    @property
    def idle(self) -> bool:
        """Return whether no write waits or runs."""
        return self._pending == 0

    def stalled_seconds(self) -> float:
        """Return for how long the writer has had work without finishing a batch."""
        since = self._busy_since
        return 0.0 if since is None else self._clock.monotonic() - since

    def _is_stalled(self) -> bool:
        return self.stalled_seconds() > STALL_SECONDS_MAX

    def _deliver(self, batch: list[WriteRequest], published: list[Any]) -> None:
        """Publish events, then wake the callers. Runs on the loop."""
        now = self._clock.monotonic()
        jobs = 0
        if any(request.calls for request in batch):
            self._full = None
            if (detached := self._check_files()) is not None:
                published = []
                for request in batch:
                    request.outcomes = [CallOutcome(error=detached) for _ in request.calls]
        for request in batch:
            jobs += len(request.calls)
            for outcome in request.outcomes:
                if outcome.error is not None:
                    self._record_problem(outcome.error, now)
        self._pending -= jobs
        self._note_written(jobs)
        if jobs:
            self._results.clear()  # would be unused until the next read
            self._observe_jobs(jobs)
            if self._busy_since is not None:
                self._observe_seconds(now - self._busy_since)
        self._busy_since = now if self._pending else None
        if published:
            self._publish(published)
        for request in batch:
            request.waiter.switch(None)

    def _check_files(self) -> StoreDetached | None:
        """Return the error if a file was removed or replaced, so new writes would be lost."""
        file = "" if self._shared else self._files.find_change()  # the writer checks a shared file
        if not file:
            self._detached = None
        elif self._detached is None:
            self._detached = StoreDetached(self.name, file)
            self.log.error(self._detached.message, store=self.name, code=self._detached.code)
        return self._detached

    def _note_written(self, jobs: int) -> None:
        self._jobs_in_wal += 0 if self._shared else jobs  # SQLite checkpoints a shared store
        if self._jobs_in_wal >= CHECKPOINT_JOBS:
            self._checkpoint_due.set()

    def _record_problem(self, error: BaseException, now: float) -> None:
        """Change the store's state after a failed read or write."""
        if not isinstance(error, StoreFull | StoreBusy | StoreSuspect):
            return
        _problems.labels(self.name, error.code).inc()
        if isinstance(error, StoreFull):
            self._full_until = now + FULL_SECONDS
            self._full, self._was_low = error, self._is_low()
        elif isinstance(error, StoreSuspect) and self._suspect is None:
            self._suspect = StoreSuspect(details={"store": self.name})
            self.log.error("database suspect: this store has stopped", store=self.name)
            try:
                os.close(open_own(suspect_marker(self.path), os.O_WRONLY | os.O_CREAT))
            except OSError as failure:
                self.log.error("can't leave a mark beside it", failure, store=self.name)

    # -- reading -------------------------------------------------------------------

    def read(self, function: Callable[..., T], *args: Any) -> T:
        """Run `function(reader, *args)` in a reader thread; returns its result."""
        return self._begin_read(self._reads, function, args).wait()

    def read_slow(self, function: Callable[..., T], *args: Any) -> T:
        """Read like `read`, for reads that may take long, such as searches and scans.

        Raises ReadCancelled once the client has disconnected.
        """
        client = caller.current.get()
        is_cancelled = None if client is None else client.is_gone
        return self._begin_read(self._slow_reads, function, args, is_cancelled).wait()

    def read_cached(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        """Return `make()`, which reads this store, or its former result for an equal `key` if
        nothing was committed since."""
        self._check_readable()
        return self._results.get(key, make)

    def _check_readable(self) -> None:
        refusal = self._closed or self._suspect
        if refusal is not None:
            raise refusal.with_traceback(None)

    def _begin_read(
        self,
        pool: ReaderPool,
        function: Callable[..., T],
        args: tuple[Any, ...],
        is_cancelled: Callable[[], bool] | None = None,
    ) -> ReadRequest[T]:
        self._check_readable()
        return pool.begin(ReadRequest(function, args, is_cancelled))

    def _pool(self, threads: int, waiting_max: int, steps: int) -> ReaderPool:
        settings = self.settings

        def open_reader() -> Reader:
            files = None
            if self._shared:
                if not self.path.exists():
                    raise StoreAbsent
                connection = open_shared(self.name, self.path, settings.synchronous)
                connection.execute("PRAGMA query_only = ON").fetchall()
                files = StoreFiles(self.path)
            elif file := self._files.find_change():
                raise StoreDetached(self.name, file)
            else:
                connection = open_connection(
                    self.path, settings.synchronous, query_only=True, read_only=settings.read_only
                )
                self._files.note_log()
            return Reader(
                connection, self._clock, seconds_max=READ_SECONDS_MAX, steps=steps, files=files
            )

        return ReaderPool(
            threads, waiting_max, self.path.parent, open_reader,
            lambda: self._shared or not self._files.find_change(), self._callbacks,
            lambda error: self._record_problem(error, self._clock.monotonic()),
        )  # fmt: skip

    # -- upkeep ----------------------------------------------------------------------

    def checkpoint(self) -> bool:
        """Move the WAL into the database file after enough writes. True after success.

        First a reader thread moves most pages while the writer works, then the writer moves
        the rest. The WAL is then empty for a moment, and the next commit overwrites it from its
        start. This is done often because syncing a file that grows costs twice as much.
        """
        if self._jobs_in_wal < CHECKPOINT_JOBS:
            return False
        self._jobs_in_wal = 0
        if not self.read(_try_to_move_wal):
            self.log.warning("upkeep failed; serving goes on", store=self.name)
            return False
        long = file_bytes(self.path, "-wal") > WAL_BYTES_TRUNCATE
        self._maintain(empty_wal if long else move_wal)
        return True

    def vacuum(self) -> None:
        """Rewrite the file without its free pages. Writes wait meanwhile; for small files only."""
        self._maintain(vacuum)

    def _maintain(self, function: Callable[[Reader], Any]) -> None:
        """Run `function` in the writer between two batches, outside a transaction."""
        request = WriteRequest((), function)
        self._writer.submit(request)
        request.waiter.get()

    def facts(self) -> dict[str, Any]:
        """Return facts for the doctor's checks and for metrics."""
        return {
            "bytes": file_bytes(self.path),
            "queue_jobs": self._pending,
            "stalled_seconds": self.stalled_seconds(),
            "stalled_seconds_max": STALL_SECONDS_MAX,
            "writer_alive": self._writer.alive,
            "writer_restarts": 0 if self._writers is None else self._writers.restarts,
            "writing_paused": self._is_paused(),
            "read_only": self.settings.read_only,
            "detached": self._check_files() is not None,
            "suspect": self._suspect is not None,
            "suspended": self._suspended is not None,
            "wal_bytes": file_bytes(self.path, "-wal"),
        }

    def _is_paused(self) -> bool:
        """Return whether the disk takes no writes. Without other writes, an empty one tests the
        disk again."""
        if self.settings.read_only:
            return False
        if self._full is not None and self.idle:
            with suppress(Unavailable):
                self.begin([(_write_same, ())])
        # Space that is back ends the pause before the test has ended.
        return self._is_low() or (self._full is not None and not self._was_low)

    def _is_low(self) -> bool:
        return free_bytes(self.path.parent) < self.settings.free_bytes_min

    def close(self, timeout_seconds: float = 10.0) -> bool:
        """Refuse new work, finish queued work, move the WAL. False when time ran out."""
        self._closed = StoreClosed()
        if not (self.settings.read_only or self._shared):
            self._writer.submit(WriteRequest((), empty_wal))
        finished = self._writer.close(timeout_seconds)
        ended = [pool.close(timeout_seconds) for pool in (self._reads, self._slow_reads)]
        if finished and all(ended):
            self._callbacks.close()
        return finished and all(ended)


def _write_same(tx: Tx) -> None:
    """Write pages, and leave the file's content as it is."""
    tx.execute("CREATE TABLE x_written (value)")
    tx.execute("DROP TABLE x_written")


def _try_to_move_wal(reader: Reader) -> bool:
    """Move the log; return False on a full disk: the log then grows, but writing goes on."""
    try:
        move_wal(reader)
    except sqlite3.OperationalError as error:
        if isinstance(translate(error), StoreFull):
            return False
        raise
    return True
