"""The writer's batch, driven at random: any mix of success, failure, lost transaction, commit
error. The file holds exactly what callers received, and only that is published."""

import sqlite3
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from appliance.kernel.batch import BatchRunner
from appliance.kernel.clock import SystemClock
from appliance.kernel.ids import IdFactory


class Refused(Exception):
    pass


class FaultyRunner(BatchRunner):
    """Commits fail if `fault` is set: before SQLite runs them, or after it rolled back."""

    fault = None

    def commit(self):
        fault, self.fault = self.fault, None
        if fault == "busy":
            raise sqlite3.OperationalError("commit refused")
        if fault == "rolled back":
            self.connection.execute("ROLLBACK")
            raise sqlite3.OperationalError("disk full at commit")
        super().commit()


def put(tx, value, rows):
    for _ in range(rows):
        number = tx.execute("INSERT INTO rows (value) VALUES (?)", (value,)).lastrowid
        tx.execute("INSERT INTO events (row_id) VALUES (?)", (number,))
        tx.publish((number, value))
    return value


def put_and_refuse(tx, value, rows):
    put(tx, value, rows)
    raise Refused(value)


def put_and_violate(tx, value, rows):
    put(tx, value, rows)
    tx.execute("INSERT INTO rows (value) VALUES (NULL)")


def lose_transaction(tx, value, rows):
    put(tx, value, rows)
    tx.execute("ROLLBACK")
    raise sqlite3.OperationalError("disk full inside a job")


FUNCTIONS = {
    "put": put,
    "refuse": put_and_refuse,
    "violate": put_and_violate,
    "lose": lose_transaction,
}
jobs = st.lists(
    st.tuples(st.sampled_from([*FUNCTIONS, "put", "put"]), st.integers(0, 3)),
    min_size=1,
    max_size=8,
)


class WriterMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "store.sqlite3"
        self.stored = []
        self.published = []
        self.value = 0

    @initialize()
    def open(self):
        self.connect()
        self.runner.connection.execute("PRAGMA journal_mode = WAL").fetchall()
        self.runner.connection.execute(
            "CREATE TABLE rows (id INTEGER PRIMARY KEY AUTOINCREMENT, value INTEGER NOT NULL)"
        )
        self.runner.connection.execute(
            "CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, row_id INTEGER NOT NULL)"
        )

    def connect(self):
        connection = sqlite3.connect(self.path, isolation_level=None)
        clock = SystemClock()
        self.runner = FaultyRunner(connection, clock, IdFactory(clock))

    @rule(jobs=jobs, fault=st.sampled_from([None, None, None, "busy", "rolled back"]))
    def run_batch(self, jobs, fault):
        calls, expected = [], []
        for kind, rows in jobs:
            self.value += 1
            calls.append((FUNCTIONS[kind], (self.value, rows)))
            expected.append((kind, self.value, rows))
        self.runner.fault = fault
        outcomes, published = self.runner.run(calls)
        assert len(outcomes) == len(calls)
        alone = len(calls) == 1 and expected[0][0] != "put"
        lost = any(kind == "lose" for kind, _, _ in expected)
        failed_whole = lost or (fault is not None and not alone)
        if failed_whole:
            assert all(outcome.error is not None for outcome in outcomes)
            assert published == []
        else:
            self.check_each(expected, outcomes, published)
        assert not self.runner.connection.in_transaction

    def check_each(self, expected, outcomes, published):
        for (kind, value, rows), outcome in zip(expected, outcomes, strict=True):
            if kind == "put":
                assert outcome.unwrap() == value
                self.stored += [value] * rows
            else:
                assert isinstance(outcome.error, Refused | sqlite3.IntegrityError)
        self.published += published

    @rule()
    def time_passes_without_failures(self):
        self.runner.fault = None
        while self.runner.careful:
            self.runner.run([(put, (0, 0))] * 2)

    @rule()
    def stop_and_start(self):
        self.runner.connection.close()
        self.connect()

    @invariant()
    def the_file_is_what_was_promised(self):
        if not hasattr(self, "runner"):
            return
        execute = self.runner.connection.execute
        rows = execute("SELECT id, value FROM rows ORDER BY id").fetchall()
        assert [value for _, value in rows] == self.stored
        assert rows == self.published, "exactly the stored rows are published, in commit order"
        events = execute("SELECT row_id FROM events ORDER BY id").fetchall()
        assert [row_id for (row_id,) in events] == [number for number, _ in rows]

    def teardown(self):
        if hasattr(self, "runner"):
            self.runner.connection.close()
        self.directory.cleanup()


TestWriter = WriterMachine.TestCase
TestWriter.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
