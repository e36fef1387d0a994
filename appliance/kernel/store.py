"""One SQLite file: many readers, one writer, group commit.

`write` hands a function to the writer's thread and waits; the writer takes what is
already waiting (never waits for more), runs it as one batch (`batch.py` has the proof)
and hands the outcome back to the loop, which publishes to the feed first and replies
after: when a caller hears of its write, every live subscription already holds it.

`read` runs a function in one of a few native threads, on a connection that can't
write. `read_slow` does so in threads of its own, so that no other read waits for an
expensive one; it stops when the client that asked for it disconnects.

Trouble is a state, not a crash: a full disk refuses writes until space returns and
lets reads go on; a damaged file stops this store, leaves a mark beside it, and stays
stopped until the doctor has looked at it.
"""

import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import gevent

from appliance.kernel import caller
from appliance.kernel.batch import BatchRunner, Call, Outcome
from appliance.kernel.checkpointer import Checkpointer
from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.loop_callbacks import Handoff
from appliance.kernel.metrics import counter, gauge, histogram
from appliance.kernel.reader import STEPS_BETWEEN_CHECKS, Reader, open_connection
from appliance.kernel.readerpool import ReaderPool
from appliance.kernel.readlimit import STEPS_BETWEEN_CHECKS as STEPS_SLOW
from appliance.kernel.store_errors import (
    QueueFull,
    StoreBusy,
    StoreClosed,
    StoreFull,
    StoreSuspect,
    StoreSuspended,
    translated,
)
from appliance.kernel.wakeup import Signal
from appliance.kernel.write_request import Reading, Submission
from appliance.kernel.writer import (
    CatchUp,
    StoreSettings,
    Writer,
    empty_wal,
    move_wal,
    vacuum,
    wal_bytes,
)
from appliance.kernel.writerchild import WriterConfig
from appliance.kernel.writerprocess import WriterProcess
from appliance.kernel.writerthread import WriterThread

T = TypeVar("T")

BATCH_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_batches = histogram("store_batch_jobs", "Writes that shared one commit", ("store",), BATCH_ROWS)
_commit_seconds = histogram(
    "store_batch_seconds", "Time from the first waiting write to its reply", ("store",)
)
_trouble = counter("store_trouble_total", "Writes and reads met by trouble", ("store", "code"))
_suspended_gauge = gauge(
    "store_suspended", "1 for a store that was damaged at the start and is not served", ("store",)
)
_queued = gauge("store_queue_jobs", "Writes waiting or running", ("store",))
_slow = gauge("store_slow_reads", "Expensive reads waiting or running", ("store",))

CALLER_SECONDS = 0.25  # how often an expensive read looks whether its client is still there


class Store:
    """Opened by the greenlet that makes it, on that greenlet's loop."""

    def __init__(
        self,
        name: str,
        path: Path,
        settings: StoreSettings,
        clock: Clock,
        log: Log,
        publish: Callable[[list[Any]], None] = lambda _: None,
        runner: type[BatchRunner] = BatchRunner,
        apart: "WriterProcessOptions | None" = None,
        catch_up: CatchUp | None = None,
    ) -> None:
        """`apart` has the writer in a process of its own; `runner` is replaced by tests that
        inject faults: into what a thread or the loop commits, not into that process;
        `catch_up` is work that follows the writes."""
        self.name = name
        self.path = path
        self.settings = settings
        self._clock = clock
        self._log = log
        self._publish = publish
        self._handoff = Handoff()
        self._pending = 0
        self._closed = False
        self._suspect = path.with_name(path.name + ".suspect").exists()
        self._suspended: StoreSuspended | None = None
        self._full_until = float("-inf")
        self._busy_since: float | None = None
        self._jobs_in_wal = 0
        self._checkpoint_due = Signal()  # set when enough was written for `checkpoint`
        self.checkpointer = Checkpointer(
            self.checkpoint, self._checkpoint_due, settings.checkpoint_seconds, clock, log
        )
        self._reads = self._pool(settings.readers, settings.read_queue_max, STEPS_BETWEEN_CHECKS)
        self._slow_reads = self._pool(
            settings.slow_readers, settings.slow_read_queue_max, STEPS_SLOW
        )
        self._bind_metrics()
        self._writer: WriterThread | WriterProcess
        if apart is not None:
            self._writer = WriterProcess(
                WriterConfig(
                    name, str(path.absolute()), settings, apart.log_level, os.getpid(), catch_up
                ),
                self._deliver,
                apart.restarted,
                clock,
                log,
                apart.lock_descriptor,
            )
        else:
            writer = Writer(name, path, settings, clock, log, runner, catch_up)
            self._writer = WriterThread(writer, settings.batch_max, self._handoff, self._deliver)

    def _bind_metrics(self) -> None:
        self._observe_jobs = _batches.labels(self.name).observe
        self._observe_seconds = _commit_seconds.labels(self.name).observe
        _queued.labels(self.name).set_function(lambda: self._pending)
        _slow.labels(self.name).set_function(lambda: self._slow_reads.pending)
        _suspended_gauge.labels(self.name).set(0)

    # -- writing -----------------------------------------------------------------

    def write(self, function: Callable[..., T], *args: Any) -> T:
        """`function(tx, *args)` in the writer, committed; its result.

        Raises what the function raised (nothing of it is stored then), or an
        Unavailable with the reason why nothing could be stored.
        """
        outcome: Outcome = self.write_many([(function, args)])[0]
        if outcome.error is not None:
            raise outcome.error
        return outcome.result  # type: ignore[no-any-return]

    def write_many(self, calls: Sequence[Call]) -> list[Outcome]:
        """All calls in order, in one transaction or several; an outcome for each.

        Raises Unavailable when none was taken. Calls fail one by one, not together.
        """
        return self.begin(calls).wait()

    def begin(self, calls: Sequence[Call]) -> Submission:
        """As `write_many`, for who has something else to do before the outcomes are there.

        Calls are run in the order in which they were begun.
        """
        self._admit(len(calls))
        submission = Submission(calls)
        self._writer.submit(submission)
        self._pending += len(calls)
        if self._busy_since is None:
            self._busy_since = self._clock.monotonic()
        return submission

    def _admit(self, jobs: int) -> None:
        wait = self.settings.retry_after_seconds
        if self._closed:
            raise StoreClosed(retry_after=wait)
        if self._suspended is not None:
            raise self._suspended
        if self._suspect:
            raise StoreSuspect
        if self._full_until > self._clock.monotonic():
            raise StoreFull(retry_after=wait)
        if self._pending + jobs > self.settings.queue_max and self._pending:
            raise QueueFull(retry_after=wait)
        if self.stalled_seconds() > self.settings.stall_seconds_max:
            raise StoreBusy("the writer has not finished a batch for too long", retry_after=wait)

    def suspend(self, error: StoreSuspended) -> None:
        """Refuse every write from now on: an empty file stands in for the damaged one."""
        self._suspended = error
        _suspended_gauge.labels(self.name).set(1)

    def seed_ids(self, last_id: str | None) -> None:
        """Make new ids sort above `last_id`. Before the first write."""
        if last_id is not None:
            self._writer.ids.seed(last_id)

    @property
    def idle(self) -> bool:
        """True when no write waits or runs."""
        return self._pending == 0

    def stalled_seconds(self) -> float:
        """How long the writer has had work without finishing a batch."""
        since = self._busy_since
        return 0.0 if since is None else self._clock.monotonic() - since

    def _deliver(self, batch: list[Submission], published: list[Any]) -> None:
        """On the loop: events first, replies after."""
        now = self._clock.monotonic()
        jobs = 0
        for submission in batch:
            jobs += len(submission.calls)
            for outcome in submission.outcomes:
                if outcome.error is not None:
                    self._note(outcome.error, now)
        self._pending -= jobs
        self._written(jobs)
        if jobs:
            self._observe_jobs(jobs)
            if self._busy_since is not None:
                self._observe_seconds(now - self._busy_since)
        self._busy_since = now if self._pending else None
        if published:
            self._publish(published)
        for submission in batch:
            submission.waiter.switch(None)

    def _written(self, jobs: int) -> None:
        self._jobs_in_wal += jobs
        if self._jobs_in_wal >= self.settings.checkpoint_jobs:
            self._checkpoint_due.set()

    def _note(self, error: BaseException, now: float) -> None:
        """Trouble that a write or read met becomes the state of the store."""
        if not isinstance(error, StoreFull | StoreBusy | StoreSuspect):
            return
        _trouble.labels(self.name, error.code).inc()
        if isinstance(error, StoreFull):
            self._full_until = now + self.settings.retry_after_seconds
        elif isinstance(error, StoreSuspect) and not self._suspect:
            self._suspect = True
            self._log.error("database suspect: this store has stopped", store=self.name)
            try:
                self.path.with_name(self.path.name + ".suspect").write_text("damaged\n")
            except OSError as failure:
                self._log.error("can't leave a mark beside it", failure, store=self.name)

    # -- reading -------------------------------------------------------------------

    def read(self, function: Callable[..., T], *args: Any) -> T:
        """`function(reader, *args)` in a reader's thread; its result."""
        return self.begin_read(function, *args).wait()

    def begin_read(self, function: Callable[..., T], *args: Any) -> Reading[T]:
        """As `read`, for who has something else to do before the result is there."""
        self._admit_read()
        return self._reads.begin(function, args, "too many reads are waiting")

    def read_slow(self, function: Callable[..., T], *args: Any) -> T:
        """As `read`, for a read that may take long: a search, a scan.

        It is stopped with ReadCancelled once the client that waits for it has disconnected.
        """
        reading = self.begin_slow_read(function, *args)
        client = caller.current.get()
        if client is None:
            return reading.wait()

        def look() -> None:
            if client.is_gone():
                reading.cancel()

        timer = gevent.get_hub().loop.timer(CALLER_SECONDS, CALLER_SECONDS)
        timer.start(look)
        try:
            return reading.wait()
        finally:
            timer.stop()
            timer.close()

    def begin_slow_read(self, function: Callable[..., T], *args: Any) -> Reading[T]:
        """As `read_slow`, but returns at once; the result is waited for later."""
        self._admit_read()
        return self._slow_reads.begin(
            function, args, "too many expensive reads are waiting (store.slow_read_queue_max)"
        )

    def _admit_read(self) -> None:
        if self._closed:
            raise StoreClosed(retry_after=self.settings.retry_after_seconds)
        if self._suspect:
            raise StoreSuspect

    def _pool(self, threads: int, waiting_max: int, steps: int) -> ReaderPool:
        settings = self.settings

        def open_reader() -> Reader:
            connection = open_connection(self.path, settings.synchronous, query_only=True)
            return Reader(
                connection,
                self._clock,
                seconds_max=settings.read_seconds_max,
                page_bytes_max=settings.page_bytes_max,
                steps=steps,
            )

        return ReaderPool(
            threads, waiting_max, settings.retry_after_seconds, self.path.parent, open_reader,
            lambda reader: reader.connection.close(),
            self._handoff, lambda error: self._note(error, self._clock.monotonic()),
        )  # fmt: skip

    # -- upkeep ----------------------------------------------------------------------

    def checkpoint(self) -> bool:
        """Move the WAL into the file when enough was written. True if it worked.

        First a reader's thread moves most pages beside the writer, then the writer moves
        the few that came meanwhile: then the WAL is empty for a moment, and the next
        commit overwrites it from its start. Overwriting is why this is done often: a
        sync of a file that grows costs twice one of a file that doesn't.
        """
        if self._jobs_in_wal < self.settings.checkpoint_jobs:
            return False
        self._jobs_in_wal = 0
        if not self.read(_try_to_move_wal):
            self._log.warning("upkeep failed; serving goes on", store=self.name)
            return False
        long = self.wal_bytes() > self.settings.wal_bytes_truncate
        self._maintain(empty_wal if long else move_wal)
        return True

    def vacuum(self) -> None:
        """Write the file anew without its free pages. Writes wait; for small files only."""
        self._maintain(vacuum)

    def _maintain(self, function: Callable[[Reader], Any]) -> None:
        """Have the writer run `function` between two batches, outside a transaction."""
        submission = Submission((), function)
        self._writer.submit(submission)
        submission.waiter.get()

    def wal_bytes(self) -> int:
        return wal_bytes(self.path)

    def facts(self) -> dict[str, Any]:
        """What the doctor's checks want to know of the living store."""
        return {
            "queue_jobs": self._pending,
            "stalled_seconds": self.stalled_seconds(),
            "stalled_seconds_max": self.settings.stall_seconds_max,
            "writer_alive": self._writer.alive,
            "writing_paused": self._full_until > self._clock.monotonic(),
            "suspect": self._suspect,
            "suspended": self._suspended is not None,
            "wal_bytes": self.wal_bytes(),
        }

    def close(self, timeout_seconds: float = 10.0) -> bool:
        """Refuse new work, finish what waits, move the WAL. False when time ran out."""
        self._closed = True
        last = Submission((), empty_wal)
        self._writer.submit(last)
        finished = self._writer.close(timeout_seconds)
        ended = [pool.close(timeout_seconds) for pool in (self._reads, self._slow_reads)]
        if finished and all(ended):
            self._handoff.close()
        return finished and all(ended)


def _try_to_move_wal(reader: Reader) -> bool:
    """False when the disk refused: the log grows on, and that is no reason not to write."""
    try:
        move_wal(reader)
    except sqlite3.OperationalError as error:
        if isinstance(translated(error, 0), StoreFull):
            return False
        raise
    return True


class WriterProcessOptions:
    """How a writer in a process of its own is tied to this one."""

    def __init__(
        self,
        lock_descriptor: int | None,
        restarted: Callable[[], None],
        log_level: str = "info",
    ) -> None:
        self.lock_descriptor = lock_descriptor
        self.restarted = restarted
        self.log_level = log_level
