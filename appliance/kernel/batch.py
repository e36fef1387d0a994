"""The writer's batch: many writes, one transaction, one sync.

Waiting writes share a transaction. A savepoint costs a copy of every page that a job
touches, and jobs rarely fail. So a batch first runs without savepoints. If a job raises,
the batch is rolled back and runs again with a savepoint for each job.

The guarantee: a caller's reply matches what is on disk, and its events are published if and
only if its write is committed. The proof, case by case; J is one job, B its batch:

1. J returns, with its rows in B's transaction. Results and published items stay in
   the batch; nothing has been sent yet.
2. J raises. The first time all of B is rolled back, with results, published items and rows,
   and B starts again. Jobs depend on the database only, so nothing is lost but some ids. With
   savepoints, `ROLLBACK TO` undoes J's rows only, and the items that J published are
   removed. If SQLite ended the whole transaction by itself (disk full, I/O error;
   `in_transaction` shows it), rows of earlier jobs are lost as well: B ends, and
   every job of B gets the same error (case 5).
3. COMMIT succeeds. All rows of case 1 are durable together. Only now does `run`
   return outcomes with results; the caller publishes first and replies after.
4. COMMIT fails. The transaction is rolled back if it is still open. Every job of B
   gets the error, including jobs that had failed by themselves: none left any rows.
5. BEGIN fails, or the transaction was lost: like case 4, nothing of B is on disk.
6. The process dies. Before COMMIT returns no caller has a reply, and SQLite's
   recovery removes all of B. After COMMIT returned, B is on disk, with or without replies: a
   caller without a reply must retry, with an idempotency key where a duplicate would hurt.

Event ids are in commit order because jobs run one after another, and a row and
its event are written by the same job in the same savepoint.
A batch of one job needs no savepoint: rolling back the transaction is enough.
"""

import sqlite3
from collections.abc import Callable, Sequence
from traceback import clear_frames
from typing import Any

import msgspec

from appliance.kernel.clock import Clock, iso
from appliance.kernel.commit_count import CommitCount
from appliance.kernel.ids import IdFactory
from appliance.kernel.steady_clock import steady_ms

Call = tuple[Callable[..., Any], tuple[Any, ...]]

# After a failed job, this many batches use savepoints from the start: failures come in
# bursts, and running a batch twice must stay rare.
CAREFUL_BATCHES = 16


class CallOutcome(msgspec.Struct, eq=False):
    """One job's result or error."""

    result: Any = None
    error: BaseException | None = None

    def unwrap(self) -> Any:
        """Return the result, or raise the job's error."""
        if self.error is not None:
            raise self.error
        return self.result


def end_cursors(error: BaseException | None) -> None:
    """Drop what the error's frames name: a cursor with rows left would keep its snapshot, so the
    connection would miss all newer commits, and could not write after them."""
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__context__


class Tx:
    """A write function's argument: statements, one instant, new ids, and `publish`.

    now, now_ms  the job's instant, as ISO 8601 text and in milliseconds
    steady_ms    that instant on the store's steady clock, for stored waits and ages
    """

    __slots__ = (
        "_clock", "_ids", "_steady_ms", "execute", "executemany", "now", "now_ms", "published",
    )  # fmt: skip

    def __init__(self, connection: sqlite3.Connection, clock: Clock, ids: IdFactory) -> None:
        self.execute = connection.execute
        self.executemany = connection.executemany
        self.published: list[Any] = []
        self._clock = clock
        self._ids = ids
        self.now_ms = 0
        self.now = ""
        self._steady_ms: int | None = None

    def publish(self, item: Any) -> None:
        """Publish `item` to the feed's subscribers once the transaction is committed."""
        self.published.append(item)

    def new_id(self, prefix: str) -> str:
        return self._ids.new(prefix)

    @property
    def steady_ms(self) -> int:
        if self._steady_ms is None:
            self._steady_ms = steady_ms(self, self._clock)
        return self._steady_ms

    def restart(self) -> None:
        """Read the clock for the next job."""
        self._steady_ms = None
        now_ms = self._clock.now_ms()
        if now_ms != self.now_ms:
            self.now_ms = now_ms
            self.now = iso(now_ms)


class BatchRunner:
    """Runs batches on one connection (in autocommit mode, used by nobody else).

    careful  how many more batches use savepoints from the start
    commits  counts the commits that changed something; None: nobody counts them
    """

    def __init__(self, connection: sqlite3.Connection, clock: Clock, ids: IdFactory) -> None:
        self.connection = connection
        self._clock = clock
        self._ids = ids
        self.careful = 0
        self.commits: CommitCount | None = None

    def run(self, calls: Sequence[Call]) -> tuple[list[CallOutcome], list[Any]]:
        """Return outcomes in the order of `calls`, and all published items in commit order.

        Never raises for anything a job or SQLite does.
        """
        tx = Tx(self.connection, self._clock, self._ids)
        try:
            before = self.connection.total_changes
            self.connection.execute("BEGIN IMMEDIATE")
            outcomes = self._run_all(tx, calls)
            counted = self.commits if self.connection.total_changes != before else None
            if self.connection.in_transaction:
                if counted is not None:
                    counted.count()
                self.commit()
                if counted is not None:
                    counted.note()
        except (sqlite3.Error, BatchLost) as error:
            self._roll_back()
            cause = error.__cause__ if isinstance(error, BatchLost) else error
            return [CallOutcome(error=cause) for _ in calls], []
        return outcomes, tx.published

    def commit(self) -> None:
        self.connection.execute("COMMIT")

    def _run_all(self, tx: Tx, calls: Sequence[Call]) -> list[CallOutcome]:
        if len(calls) == 1:
            return [self._run_single(tx, calls[0])]
        if self.careful:
            self.careful -= 1
            return self._run_apart(tx, calls)
        try:
            return self._run_together(tx, calls)
        except Exception as error:
            end_cursors(error)
            self.careful = CAREFUL_BATCHES
            tx.published.clear()
            self._roll_back()
            self.connection.execute("BEGIN IMMEDIATE")
            return self._run_apart(tx, calls)

    def _run_together(self, tx: Tx, calls: Sequence[Call]) -> list[CallOutcome]:
        """Run the jobs without savepoints. Raise the error from the first job that fails."""
        outcomes = []
        for function, args in calls:
            tx.restart()
            outcomes.append(CallOutcome(function(tx, *args)))
        return outcomes

    def _run_single(self, tx: Tx, call: Call) -> CallOutcome:
        tx.restart()
        function, args = call
        try:
            return CallOutcome(function(tx, *args))
        except Exception as error:
            end_cursors(error)
            self._roll_back()
            tx.published.clear()
            return CallOutcome(error=error)

    def _run_apart(self, tx: Tx, calls: Sequence[Call]) -> list[CallOutcome]:
        execute = self.connection.execute
        outcomes = []
        for function, args in calls:
            published_before = len(tx.published)
            tx.restart()
            execute("SAVEPOINT job")
            try:
                outcomes.append(CallOutcome(function(tx, *args)))
            except Exception as error:
                if not self.connection.in_transaction:
                    raise BatchLost from error
                end_cursors(error)
                execute("ROLLBACK TO job")
                del tx.published[published_before:]
                outcomes.append(CallOutcome(error=error))
            execute("RELEASE job")
        return outcomes

    def _roll_back(self) -> None:
        if self.connection.in_transaction:
            try:
                self.connection.execute("ROLLBACK")
            except sqlite3.Error:
                # SQLite rolled back by itself between the two statements.
                if self.connection.in_transaction:
                    raise


class BatchLost(Exception):
    """SQLite ended the transaction inside a job; the cause is that job's error."""
