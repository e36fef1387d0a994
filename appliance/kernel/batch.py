"""The writer's batch: many writes, one transaction, one sync.

Waiting writes share a transaction. Savepoints cost a copy of every page that a job
touches, and jobs seldom fail: so the batch is run without them first, and if a job
raises, all is rolled back and the batch begins again with a savepoint for each job.

The promise to every caller: its reply says what is on disk, and its events are told
exactly when it is. The proof, case by case; J is one job, B its batch:

1. J returns. Its rows are part of B's transaction. Nobody has been told anything:
   results and published items wait in the batch.
2. J raises. The first time everything of B is undone and forgotten, results, published
   items and rows alike, and B begins anew: jobs are functions of the database alone, so
   nothing but ids (which may be skipped) and a moment is lost. With savepoints,
   `ROLLBACK TO` undoes J's rows and no others, and what J published is cut off. If
   SQLite ended the whole transaction by itself (disk full, I/O error: it may, and
   `in_transaction` says so) then rows of earlier jobs are gone as well: B is over, and
   every job of B, run or not, hears the same error (case 5).
3. COMMIT succeeds. All rows of case 1 are durable together. Only now does `run`
   return outcomes with results; the caller publishes first and replies after.
4. COMMIT fails. The transaction is rolled back if it is still open. Every job of B
   hears the error, also those that had failed alone: none of them left anything.
5. BEGIN fails, or the transaction was lost: as 4, nothing of B is on disk.
6. The process dies. Before COMMIT returns nobody has had a reply, and SQLite's
   recovery removes B whole. After COMMIT returned, B is on disk, replied to or not: a
   caller without a reply must ask again, with an idempotency key if twice would hurt.

Event ids stay in commit order because jobs are taken one by one, and a row and
its event are written by the same job in the same savepoint.
A batch of one job never needs a savepoint: its rollback is the transaction's.
"""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from appliance.kernel.clock import Clock, iso
from appliance.kernel.ids import IdFactory

Call = tuple[Callable[..., Any], tuple[Any, ...]]

# After a batch in which a job failed, so many get savepoints at once: failures come in
# bursts, and doing a batch twice must stay the exception.
CAREFUL_BATCHES = 16


class Outcome:
    """What became of one job: a result or an error, and what it published."""

    __slots__ = ("error", "result")

    def __init__(self, result: Any = None, error: BaseException | None = None) -> None:
        self.result = result
        self.error = error

    def unwrap(self) -> Any:
        """The result; raises the error if there was one."""
        if self.error is not None:
            raise self.error
        return self.result


class Tx:
    """What a write function sees: statements, one instant, new ids, and `publish`.

    now, now_ms  the job's instant, as ISO 8601 text and in milliseconds
    """

    __slots__ = ("_clock", "_ids", "execute", "executemany", "now", "now_ms", "published")

    def __init__(self, connection: sqlite3.Connection, clock: Clock, ids: IdFactory) -> None:
        self.execute = connection.execute
        self.executemany = connection.executemany
        self.published: list[Any] = []
        self._clock = clock
        self._ids = ids
        self.now_ms = 0
        self.now = ""

    def publish(self, item: Any) -> None:
        """Have `item` told to the feed's subscribers, if and when this commits."""
        self.published.append(item)

    def new_id(self, prefix: str) -> str:
        return self._ids.new(prefix)

    def restart(self) -> None:
        """Take the time again, for the next job."""
        now_ms = self._clock.now_ms()
        if now_ms != self.now_ms:
            self.now_ms = now_ms
            self.now = iso(now_ms)


class BatchRunner:
    """Runs batches on one connection (in autocommit mode, used by nobody else).

    careful  how many more batches get savepoints at once
    """

    def __init__(self, connection: sqlite3.Connection, clock: Clock, ids: IdFactory) -> None:
        self.connection = connection
        self._clock = clock
        self._ids = ids
        self.careful = 0

    def run(self, calls: Sequence[Call]) -> tuple[list[Outcome], list[Any]]:
        """Outcomes in the order of `calls`, and all published items in commit order.

        Never raises for anything a job or SQLite does.
        """
        tx = Tx(self.connection, self._clock, self._ids)
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            outcomes = self._run_all(tx, calls)
            if self.connection.in_transaction:
                self.commit()
        except (sqlite3.Error, BatchLost) as error:
            self._roll_back()
            cause = error.__cause__ if isinstance(error, BatchLost) else error
            return [Outcome(error=cause) for _ in calls], []
        return outcomes, tx.published

    def commit(self) -> None:
        self.connection.execute("COMMIT")

    def _run_all(self, tx: Tx, calls: Sequence[Call]) -> list[Outcome]:
        if len(calls) == 1:
            return [self._run_one(tx, calls[0])]
        if self.careful:
            self.careful -= 1
            return self._run_apart(tx, calls)
        try:
            return self._run_together(tx, calls)
        except Exception:
            self.careful = CAREFUL_BATCHES
            tx.published.clear()
            self._roll_back()
            self.connection.execute("BEGIN IMMEDIATE")
            return self._run_apart(tx, calls)

    def _run_together(self, tx: Tx, calls: Sequence[Call]) -> list[Outcome]:
        """Raises what the first job raised that did."""
        outcomes = []
        for function, args in calls:
            tx.restart()
            outcomes.append(Outcome(function(tx, *args)))
        return outcomes

    def _run_one(self, tx: Tx, call: Call) -> Outcome:
        tx.restart()
        function, args = call
        try:
            return Outcome(function(tx, *args))
        except Exception as error:
            self._roll_back()
            tx.published.clear()
            return Outcome(error=error)

    def _run_apart(self, tx: Tx, calls: Sequence[Call]) -> list[Outcome]:
        execute = self.connection.execute
        outcomes = []
        for function, args in calls:
            mark = len(tx.published)
            tx.restart()
            execute("SAVEPOINT job")
            try:
                outcomes.append(Outcome(function(tx, *args)))
            except Exception as error:
                if not self.connection.in_transaction:
                    raise BatchLost from error
                execute("ROLLBACK TO job")
                del tx.published[mark:]
                outcomes.append(Outcome(error=error))
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
