"""One SQLite file: many readers, one writer, group commit.

`write` hands a function to the writer's thread and waits; the writer takes what is
already waiting (never waits for more), runs it as one batch (`batch.py` has the proof)
and hands the outcome back to the loop, which publishes to the feed first and replies
after: when a caller hears of its write, every live subscription already holds it.

`read` runs a function in one of a few native threads, on a connection that can't
write. Nothing here touches SQLite on the event loop.

Trouble is a state, not a crash: a full disk refuses writes until space returns and
lets reads go on; a damaged file stops this store, leaves a mark beside it, and stays
stopped until the doctor has looked at it.
"""

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from gevent.hub import Waiter

from appliance.kernel.batch import BatchRunner, Call, Outcome
from appliance.kernel.clock import Clock
from appliance.kernel.handoff import Handoff
from appliance.kernel.ids import IdFactory
from appliance.kernel.log import Log
from appliance.kernel.metrics import counter, gauge, histogram
from appliance.kernel.native import NativeThread, SimpleQueue
from appliance.kernel.reader import BUSY_TIMEOUT_MS, Reader, open_connection
from appliance.kernel.trouble import (
    QueueFull,
    StoreBusy,
    StoreClosed,
    StoreFull,
    StoreSuspect,
    free_bytes,
    sqlite_name,
)

T = TypeVar("T")

BATCH_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_batches = histogram("store_batch_jobs", "Writes that shared one commit", ("store",), BATCH_ROWS)
_commit_seconds = histogram("store_batch_seconds", "Time from BEGIN to COMMIT", ("store",))
_write_errors = counter("store_errors_total", "Batches that failed as a whole", ("store", "kind"))
_queued = gauge("store_queue_jobs", "Writes waiting or running", ("store",))


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[store]: how every SQLite file is kept."""

    synchronous: Literal["FULL", "NORMAL"] = "FULL"
    """FULL: an acknowledged write survives power loss. NORMAL: it survives a crash."""
    batch_max: int = 64  # jobs in one transaction; more only adds latency
    queue_max: int = 2000  # jobs waiting for the writer before 503
    readers: int = 2  # native threads that read; SQLite holds the GIL little
    read_queue_max: int = 1000  # reads waiting before 503
    read_seconds_max: float = 10.0  # a longer read is interrupted
    stall_seconds_max: float = 20.0  # a writer silent for longer refuses new work
    free_bytes_min: int = 64 * 1024 * 1024  # less free space: writes are refused
    wal_bytes_truncate: int = 64 * 1024 * 1024  # a WAL this long is cut when it is empty
    wal_bytes_max: int = 512 * 1024 * 1024  # a longer WAL: writes are refused
    checkpoint_jobs: int = 2000  # writes after which the Checkpointer moves the WAL
    checkpoint_seconds: float = 0.25  # how often it looks
    retry_after_seconds: float = 1.0  # told to clients that were refused


class _Submission:
    """Calls that one greenlet waits for."""

    __slots__ = ("calls", "maintenance", "outcomes", "since", "waiter")

    def __init__(self, calls: Sequence[Call], since: float) -> None:
        self.calls = calls
        self.since = since
        self.outcomes: list[Outcome] = []
        self.maintenance: Callable[[Reader], Any] | None = None
        self.waiter = Waiter()


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
        database: Any = None,
    ) -> None:
        """`database` is the subsystem's deferred peewee database, bound to `path`;
        `runner` is replaced by tests that inject faults."""
        self.name = name
        self.path = path
        self.settings = settings
        self.ids = IdFactory(clock)
        self._clock = clock
        self._log = log
        self._publish = publish
        self._runner_type = runner
        self._database = database
        self._handoff = Handoff()
        self._writes: SimpleQueue[_Submission | None] = SimpleQueue()
        self._reads: SimpleQueue[Any] = SimpleQueue()
        self._pending = 0
        self._reads_pending = 0
        self._closed = False
        self._suspect = path.with_name(path.name + ".suspect").exists()
        self._full_until = 0.0
        self._space_checked = float("-inf")
        self._busy_since: float | None = None
        self._jobs_in_wal = 0
        if database is not None:
            database.init(str(path), pragmas=[], check_same_thread=True)
        self._writer = NativeThread(self._write_loop, self._handoff)
        self._readers = [
            NativeThread(self._read_loop, self._handoff) for _ in range(settings.readers)
        ]
        self._bind_metrics()

    def _bind_metrics(self) -> None:
        self._observe_jobs = _batches.labels(self.name).observe
        self._observe_seconds = _commit_seconds.labels(self.name).observe
        _queued.labels(self.name).set_function(lambda: self._pending)

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
        self._admit(len(calls))
        submission = _Submission(calls, self._clock.monotonic())
        self._pending += len(calls)
        if self._busy_since is None:
            self._busy_since = submission.since
        self._writes.put(submission)
        submission.waiter.get()
        return submission.outcomes

    def _admit(self, jobs: int) -> None:
        wait = self.settings.retry_after_seconds
        if self._closed:
            raise StoreClosed(retry_after=wait)
        if self._suspect:
            raise StoreSuspect
        if self._full_until > self._clock.monotonic():
            raise StoreFull(retry_after=wait)
        if self._pending + jobs > self.settings.queue_max and self._pending:
            raise QueueFull(retry_after=wait)
        if self.stalled_seconds() > self.settings.stall_seconds_max:
            raise StoreBusy("the writer has not finished a batch for too long", retry_after=wait)

    @property
    def idle(self) -> bool:
        """True when no write waits or runs."""
        return self._pending == 0

    def stalled_seconds(self) -> float:
        """How long the writer has had work without finishing a batch."""
        since = self._busy_since
        return 0.0 if since is None else self._clock.monotonic() - since

    def _deliver(self, batch: list[_Submission], published: list[Any]) -> None:
        """On the loop: events first, replies after."""
        jobs = sum(len(submission.calls) for submission in batch)
        self._pending -= jobs
        self._jobs_in_wal += jobs
        self._busy_since = self._clock.monotonic() if self._pending else None
        if published:
            self._publish(published)
        for submission in batch:
            submission.waiter.switch(None)

    # -- in the writer's thread ----------------------------------------------------

    def _write_loop(self) -> None:
        runner: BatchRunner | None = None
        while batch := self._next_batch():
            try:
                runner = runner or self._open_runner()
                self._run(runner, batch)
            except Exception as error:
                # Opening failed, or a rollback did: nothing of the batch is stored, and
                # the next batch starts on a fresh connection.
                self._log.error("the writer failed", error, store=self.name)
                self._finish(batch, [Outcome(error=StoreBusy()) for _ in _calls(batch)], [])
                if runner is not None:
                    self._disconnect(runner.connection)
                    runner = None
        self._disconnect(runner.connection if runner else None)

    def _open_runner(self) -> BatchRunner:
        connection = open_connection(self.path, self.settings.synchronous, self._database)
        return self._runner_type(connection, self._clock, self.ids)

    def _next_batch(self) -> list[_Submission]:
        """The first waiting submission and those already behind it; empty at the end."""
        first = self._writes.get()
        if first is None:
            return []
        batch, jobs = [first], len(first.calls)
        while jobs < self.settings.batch_max and not self._writes.empty():
            following = self._writes.get()
            if following is None:
                self._writes.put(None)
                break
            batch.append(following)
            jobs += len(following.calls)
        return batch

    def _run(self, runner: BatchRunner, batch: list[_Submission]) -> None:
        for submission in batch:
            if submission.maintenance is not None:
                self._do_maintenance(runner, submission.maintenance)
        calls = _calls(batch)
        if not calls:
            self._finish(batch, [], [])
            return
        refusal = self._check_space(runner)
        if refusal is not None:
            outcomes = [Outcome(error=refusal) for _ in calls]
            published: list[Any] = []
        else:
            started = self._clock.monotonic()
            outcomes, published = runner.run(calls)
            self._observe_seconds(self._clock.monotonic() - started)
            self._observe_jobs(len(calls))
            self._translate(outcomes)
        self._finish(batch, outcomes, published)

    def _do_maintenance(self, runner: BatchRunner, function: Callable[[Reader], Any]) -> None:
        try:
            function(Reader(runner.connection, self._clock, query_only=False))
        except sqlite3.Error as error:
            self._log.warning(
                "upkeep failed; serving goes on", store=self.name, reason=sqlite_name(error)
            )

    def _finish(
        self, batch: list[_Submission], outcomes: list[Outcome], published: list[Any]
    ) -> None:
        position = 0
        for submission in batch:
            end = position + len(submission.calls)
            submission.outcomes = outcomes[position:end]
            position = end
        self._handoff.post(self._deliver, batch, published)

    def _check_space(self, runner: BatchRunner) -> StoreFull | None:
        """Once a second: is there room for the database and its WAL to grow?"""
        now = self._clock.monotonic()
        if now - self._space_checked < 1.0:
            return None
        self._space_checked = now
        wait = self.settings.retry_after_seconds
        if free_bytes(self.path.parent) < self.settings.free_bytes_min:
            self._note_full("free space is below store.free_bytes_min")
            return StoreFull(retry_after=wait)
        if self.wal_bytes() > self.settings.wal_bytes_max:
            self._do_maintenance(runner, _empty_wal)
        if self.wal_bytes() > self.settings.wal_bytes_max:
            self._note_full("the WAL is above store.wal_bytes_max")
            return StoreFull(
                "the write-ahead log can't be emptied; writing is paused", retry_after=wait
            )
        return None

    def _note_full(self, reason: str) -> None:
        now = self._clock.monotonic()
        if now - self._full_until > 10.0:
            self._log.error("writing paused", store=self.name, reason=reason)
        self._full_until = now + self.settings.retry_after_seconds
        self._space_checked = float("-inf")

    def _translate(self, outcomes: list[Outcome]) -> None:
        """SQLite's errors become ours; the same error is translated and logged once."""
        seen: dict[int, Exception] = {}
        for outcome in outcomes:
            error = outcome.error
            if isinstance(error, sqlite3.Error):
                if id(error) not in seen:
                    seen[id(error)] = self._translated(error)
                outcome.error = seen[id(error)]

    def _translated(self, error: sqlite3.Error) -> Exception:
        name = sqlite_name(error)
        _write_errors.labels(self.name, name).inc()
        wait = self.settings.retry_after_seconds
        if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
            self._note_full(name)
            return StoreFull(retry_after=wait)
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            self._mark_suspect(name)
            return StoreSuspect()
        self._log.error("write failed", error, store=self.name, sqlite=name)
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_READONLY", "SQLITE_CANTOPEN")):
            return StoreBusy(retry_after=wait)
        return error

    def _mark_suspect(self, name: str) -> None:
        self._suspect = True
        self._log.error("database suspect: this store has stopped", store=self.name, sqlite=name)
        try:
            self.path.with_name(self.path.name + ".suspect").write_text(name + "\n")
        except OSError as error:
            self._log.error("can't leave a mark beside the database", error, store=self.name)

    def _disconnect(self, connection: sqlite3.Connection | None) -> None:
        if self._database is not None:
            self._database.close()
        elif connection is not None:
            connection.close()

    # -- reading -------------------------------------------------------------------

    def read(self, function: Callable[..., T], *args: Any) -> T:
        """`function(reader, *args)` in a reader's thread; its result."""
        if self._closed:
            raise StoreClosed(retry_after=self.settings.retry_after_seconds)
        if self._suspect:
            raise StoreSuspect
        if self._reads_pending >= self.settings.read_queue_max:
            raise QueueFull("too many reads are waiting")
        self._reads_pending += 1
        waiter = Waiter()
        self._reads.put((function, args, waiter))
        outcome: Outcome = waiter.get()
        if outcome.error is not None:
            raise outcome.error
        return outcome.result  # type: ignore[no-any-return]

    def _read_loop(self) -> None:
        reader: Reader | None = None
        while (job := self._reads.get()) is not None:
            function, args, waiter = job
            try:
                reader = reader or self._open_reader()
                with reader.deadline():
                    outcome = Outcome(function(reader, *args))
            except Exception as error:
                outcome = Outcome(error=error)
            self._translate([outcome])
            self._handoff.post(self._answer, waiter, outcome)
        self._disconnect(reader.connection if reader else None)

    def _open_reader(self) -> Reader:
        connection = open_connection(
            self.path, self.settings.synchronous, self._database, query_only=True
        )
        return Reader(connection, self._clock, seconds_max=self.settings.read_seconds_max)

    def _answer(self, waiter: Waiter, outcome: Outcome) -> None:
        self._reads_pending -= 1
        waiter.switch(outcome)

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
        self.read(_checkpoint)
        long = self.wal_bytes() > self.settings.wal_bytes_truncate
        self._maintain(_empty_wal if long else _checkpoint)
        return True

    def _maintain(self, function: Callable[[Reader], Any]) -> None:
        """Have the writer run `function` between two batches, outside a transaction."""
        submission = _Submission([], self._clock.monotonic())
        submission.maintenance = function
        self._writes.put(submission)
        submission.waiter.get()

    def wal_bytes(self) -> int:
        try:
            return self.path.with_name(self.path.name + "-wal").stat().st_size
        except OSError:
            return 0

    def facts(self) -> dict[str, Any]:
        """What the doctor's checks want to know of the living store."""
        return {
            "queue_jobs": self._pending,
            "stalled_seconds": self.stalled_seconds(),
            "stalled_seconds_max": self.settings.stall_seconds_max,
            "writer_alive": self._writer.alive,
            "full": self._full_until > self._clock.monotonic(),
            "suspect": self._suspect,
            "wal_bytes": self.wal_bytes(),
        }

    def close(self, timeout_seconds: float = 10.0) -> bool:
        """Refuse new work, finish what waits, checkpoint. False when time ran out."""
        self._closed = True
        self._writes.put(None)
        for _ in self._readers:
            self._reads.put(None)
        ended = [thread.join(timeout_seconds) for thread in (self._writer, *self._readers)]
        if all(ended):
            self._handoff.close()
        return all(ended)


def _checkpoint(reader: Reader) -> None:
    """PASSIVE waits for nobody and blocks nobody; a reader may do it."""
    reader.execute("PRAGMA query_only = OFF").fetchall()
    try:
        reader.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    finally:
        if reader.query_only:
            reader.execute("PRAGMA query_only = ON").fetchall()


def _empty_wal(reader: Reader) -> None:
    """Move everything and cut the file to nothing, unless a reader is in the way."""
    reader.execute("PRAGMA busy_timeout = 200").fetchall()
    try:
        reader.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        reader.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}").fetchall()


def _calls(batch: list[_Submission]) -> list[Call]:
    return [call for submission in batch for call in submission.calls]
