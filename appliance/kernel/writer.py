"""Writes to a store: runs batches and maintenance, watches the disk space, translates errors.

A Writer is used by one thread, and knows nothing about event loops, so the same code serves in the
writer process (`writerprocess.py`) and in a thread in this process (`store.py`).
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from appliance.kernel import meta
from appliance.kernel.batch import BatchRunner, Call, CallOutcome, Tx
from appliance.kernel.clock import Clock
from appliance.kernel.commit_count import CommitCount
from appliance.kernel.errors import ApplianceError
from appliance.kernel.ids import IdFactory
from appliance.kernel.log import Log
from appliance.kernel.reader import BUSY_TIMEOUT_MS, Reader, open_connection
from appliance.kernel.store_declaration import declaration_of, open_shared
from appliance.kernel.store_errors import (
    StoreBusy,
    StoreDetached,
    StoreFull,
    free_bytes,
    sqlite_name,
    translate,
)
from appliance.kernel.store_files import StoreFiles

BATCH_MAX = 64  # writes in one transaction; more only adds latency
WAL_BYTES_MAX = 512 * 1024 * 1024  # a larger WAL makes reads slow; writes are refused
FULL_LOG_SECONDS = 10.0
FILES_MAX = 3  # a batch in a shared file that is replaced meanwhile is run in the next file
LATE_SECONDS = 0.5
LATE = 20


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[store]: how every SQLite file is kept."""

    synchronous: Literal["FULL", "NORMAL"] = "FULL"  # FULL: commits survive a power failure
    free_bytes_min: int = 64 * 1024 * 1024  # with less free disk space, writes are refused
    read_only: bool = False  # serve the hub's reads only and write to no store
    migrate_at_start: bool = True  # false: with older stores, refuse to start (agentlip migrate)


class CatchUp(msgspec.Struct, frozen=True):
    """Background work on written rows that must keep up with the writes.

    `function(tx, limit)` does at most `limit` pieces and returns whether some are left. The
    function joins a batch every `seconds`, and then every batch until nothing is left. The limit is
    at least two pieces for each write of the batch, so the work is faster than the writes, and LATE
    times `pieces_max` after a delay of LATE_SECONDS.
    """

    function: Callable[[Tx, int], bool]  # defined in a module, to run in any process
    seconds: float
    pieces_max: int


class WriterRequest(msgspec.Struct, eq=False):
    """A request: `calls` to run in one transaction with others, or one piece of `maintenance`.
    `alone`: nothing else joins it."""

    calls: Sequence[Call] = ()
    maintenance: Callable[[Reader], Any] | None = None
    alone: bool = False
    outcomes: list[CallOutcome] = []

    def __post_init__(self) -> None:
        self.alone = self.alone or self.maintenance is not None


R = TypeVar("R", bound=WriterRequest)


class Writer:
    """The owner of the only connection that writes. Job errors never raise here."""

    def __init__(
        self,
        name: str,
        path: Path,
        settings: StoreSettings,
        clock: Clock,
        log: Log,
        runner: type[BatchRunner] = BatchRunner,
        catch_up: CatchUp | None = None,
    ) -> None:
        self.ids = IdFactory(clock)
        self._name = name
        self._path = path
        self._settings = settings
        self._clock = clock
        self._log = log
        self._runner_type = runner
        self._runner: BatchRunner | None = None
        self._files: StoreFiles | None = None  # only for a shared store
        self._space_checked = float("-inf")
        self._logged_at = float("-inf")
        self._catch_up = catch_up
        self._catch_up_at = clock.monotonic()  # due time

    def run_requests(self, batch: Sequence[R]) -> Iterator[tuple[list[R], list[Any]]]:
        """Run requests in order, `alone` ones separately, and set the outcomes. Yields the requests
        that ran together, and their published items."""
        part: list[R] = []
        for request in batch:
            if part and (request.alone or part[-1].alone):
                yield part, self._run_together(part)
                part = []
            part.append(request)
        if part:
            yield part, self._run_together(part)

    def _run_together(self, part: Sequence[WriterRequest]) -> list[Any]:
        if (maintenance := part[0].maintenance) is not None:
            self.maintain(maintenance)
        calls = [call for request in part for call in request.calls]
        outcomes, published = self.run(calls, alone=part[0].alone) if calls else ([], [])
        remaining = iter(outcomes)
        for request in part:
            request.outcomes = list(islice(remaining, len(request.calls)))
        return published

    def run(
        self, calls: Sequence[Call], *, alone: bool = False
    ) -> tuple[list[CallOutcome], list[Any]]:
        """Run one batch; returns outcomes in order, and published items in commit order. `alone`:
        nothing else joins it."""
        for _ in range(FILES_MAX):
            outcomes, published = self._run(calls, alone)
            shared = None if self._runner is None else self._files
            file = "" if shared is None else shared.find_change()
            if not file:
                return outcomes, published
        return [CallOutcome(error=StoreDetached(self._name, file)) for _ in calls], []

    def _run(self, calls: Sequence[Call], alone: bool) -> tuple[list[CallOutcome], list[Any]]:
        try:
            if self._files is not None and self._files.find_change():
                self._forget()  # another program made the file again
            runner = self._runner or self._open()
            refusal = self._check_space()
            if refusal is not None:
                return [CallOutcome(error=refusal) for _ in calls], []
            follow = [] if alone else self._due_catch_up(len(calls))
            began = self._clock.monotonic()
            outcomes, published = runner.run([*calls, *follow])
            seconds = self._clock.monotonic() - began
            self._log.slow("slow transaction", seconds, store=self._name, calls=len(calls))
            if follow:
                self._note_catch_up(outcomes.pop())
        except Exception as error:
            # Opening or a rollback failed: nothing in the batch is stored, and the next batch uses
            # a new connection.
            self._log.error("the writer failed", error, store=self._name)
            self._forget()
            translated_error = self._refusal(error)
            return [CallOutcome(error=translated_error) for _ in calls], []
        self._translate_errors(outcomes)
        return outcomes, published

    def _due_catch_up(self, writes: int) -> list[Call]:
        catch_up = self._catch_up
        if catch_up is None:
            return []
        late = self._clock.monotonic() - self._catch_up_at
        if late < 0:
            return []
        pieces = catch_up.pieces_max * (LATE if late > LATE_SECONDS else 1)
        return [(catch_up.function, (max(pieces, 2 * writes),))]

    def _note_catch_up(self, outcome: CallOutcome) -> None:
        assert self._catch_up is not None
        if outcome.error is None and outcome.result:
            return  # the next batch goes on
        self._catch_up_at = self._clock.monotonic() + self._catch_up.seconds
        if outcome.error is not None and not isinstance(outcome.error, sqlite3.Error):
            self._log.error("catching up failed", outcome.error, store=self._name)

    def maintain(self, function: Callable[[Reader], Any]) -> None:
        """Run `function` between two batches, outside a transaction."""
        try:
            runner = self._runner or self._open()
            function(Reader(runner.connection, self._clock, query_only=False))
        except Exception as error:
            reason = sqlite_name(error) if isinstance(error, sqlite3.Error) else ""
            self._log.warning(
                "upkeep failed; serving goes on",
                store=self._name,
                reason=reason or type(error).__name__,
            )

    def _refusal(self, error: Exception) -> Exception:
        if isinstance(error, sqlite3.Error):
            error = translate(error, self._path.parent)
        return error if isinstance(error, ApplianceError) else StoreBusy()

    def _forget(self) -> None:
        """Close the failed connection. Closing may fail as well."""
        try:
            self.close()
        except Exception as error:
            self._log.error("a connection can't be closed", error, store=self._name)

    def close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            if runner.commits is not None:
                runner.commits.close()
            runner.connection.close()

    def _open(self) -> BatchRunner:
        if declaration_of(self._name).shared:
            connection = open_shared(self._name, self._path, self._settings.synchronous)
            self._files = StoreFiles(self._path)
            self._files.note_log()
        else:
            connection = open_connection(self._path, self._settings.synchronous)
        self._runner = self._runner_type(connection, self._clock, self.ids)
        if meta.exists(connection, "meta"):
            self._runner.commits = CommitCount(connection, self._path, self._name)
        return self._runner

    def _check_space(self) -> StoreFull | None:
        """Check once a second that the database and its WAL have space to grow."""
        now = self._clock.monotonic()
        if now - self._space_checked < 1.0:
            return None
        self._space_checked = now
        if free_bytes(self._path.parent) < self._settings.free_bytes_min:
            return self._full("free space is below store.free_bytes_min")
        if file_bytes(self._path, "-wal") > WAL_BYTES_MAX:
            self.maintain(empty_wal)
            if file_bytes(self._path, "-wal") > WAL_BYTES_MAX:
                return self._full(
                    "the WAL is too large",
                    "the write-ahead log can't be emptied; writes are refused",
                )
        return None

    def _full(self, reason: str, sentence: str | None = None) -> StoreFull:
        now = self._clock.monotonic()
        if now - self._logged_at > FULL_LOG_SECONDS:
            self._logged_at = now
            self._log.error("writing paused", store=self._name, reason=reason)
        self._space_checked = float("-inf")
        return StoreFull(sentence)

    def _translate_errors(self, outcomes: list[CallOutcome]) -> None:
        """Translate SQLite's errors. An error shared by many jobs is logged once."""
        seen: dict[int, Exception] = {}
        for outcome in outcomes:
            error = outcome.error
            if isinstance(error, sqlite3.Error):
                if id(error) not in seen:
                    translated_error = translate(error, self._path.parent)
                    if isinstance(translated_error, StoreFull):
                        self._full(sqlite_name(error))
                    else:
                        self._log.error(
                            "write failed", error, store=self._name, sqlite=sqlite_name(error)
                        )
                    if translated_error is error and self._files is not None:
                        # Another program is replacing the file, or has changed the tables.
                        translated_error = StoreBusy()
                        self._forget()  # the next batch opens the file that is there then
                    seen[id(error)] = translated_error
                outcome.error = seen[id(error)]


def file_bytes(database: Path, suffix: str = "") -> int:
    """Return the size of a store's file, or of its log (`-wal`); 0 if there is none."""
    try:
        return database.with_name(database.name + suffix).stat().st_size
    except OSError:
        return 0


def move_wal(reader: Reader) -> None:
    """Run a PASSIVE checkpoint, which waits for nothing, blocks nothing, and so suits readers."""
    reader.execute("PRAGMA query_only = OFF").fetchall()
    try:
        reader.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    finally:
        if reader.query_only:
            reader.execute("PRAGMA query_only = ON").fetchall()


def empty_wal(reader: Reader) -> None:
    """Move and truncate the whole WAL, unless a reader prevents that."""
    reader.execute("PRAGMA busy_timeout = 200").fetchall()
    try:
        reader.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        reader.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}").fetchall()


def vacuum(reader: Reader) -> None:
    """Rewrite the file without its free pages."""
    reader.execute("VACUUM").fetchall()
