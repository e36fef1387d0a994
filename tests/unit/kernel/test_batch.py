"""A batch: what is on disk, what is published and what the callers get always agree."""

import sqlite3

import pytest

from appliance.kernel.batch import CAREFUL_BATCHES, BatchRunner
from appliance.kernel.ids import IdFactory
from tests.support.clock import FakeClock


@pytest.fixture
def connection():
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE rows (name TEXT PRIMARY KEY)")
    yield connection
    connection.close()


@pytest.fixture
def runner(connection):
    clock = FakeClock()
    return BatchRunner(connection, clock, IdFactory(clock))


def add(tx, name):
    tx.execute("INSERT INTO rows VALUES (?)", (name,))
    tx.publish(name)
    return name.upper()


def add_and_fail(tx, name):
    add(tx, name)
    raise ValueError(name)


def add_and_lose(tx, name):
    """As SQLite does on a full disk: the whole transaction ends within a job."""
    add(tx, name)
    tx.execute("ROLLBACK")
    raise sqlite3.OperationalError("disk full")


def calls(*pairs):
    return [(function, (name,)) for function, name in pairs]


def names(connection):
    return [name for (name,) in connection.execute("SELECT name FROM rows ORDER BY name")]


def test_jobs_of_a_batch_are_stored_and_published_in_order(runner, connection):
    outcomes, published = runner.run(calls((add, "a"), (add, "b")))
    assert [outcome.unwrap() for outcome in outcomes] == ["A", "B"]
    assert published == names(connection) == ["a", "b"]


@pytest.mark.parametrize("careful", [0, 3])
def test_failed_job_leaves_no_row_and_no_event(runner, connection, careful):
    runner.careful = careful
    outcomes, published = runner.run(calls((add, "a"), (add_and_fail, "b"), (add, "c")))
    assert [type(outcome.error) for outcome in outcomes] == [type(None), ValueError, type(None)]
    assert published == names(connection) == ["a", "c"]


def test_single_failed_job_leaves_no_row_and_no_event(runner, connection):
    ((outcome,), published) = runner.run(calls((add_and_fail, "a")))
    with pytest.raises(ValueError, match="a"):
        outcome.unwrap()
    assert published == names(connection) == []


def test_batches_after_a_failed_job_use_savepoints(runner):
    runner.run(calls((add, "a"), (add_and_fail, "b")))
    assert runner.careful == CAREFUL_BATCHES
    runner.run(calls((add, "c"), (add, "d")))
    assert runner.careful == CAREFUL_BATCHES - 1


def test_failed_commit_fails_every_job(runner, connection, monkeypatch):
    def commit():
        raise sqlite3.OperationalError("disk full")

    monkeypatch.setattr(runner, "commit", commit)
    outcomes, published = runner.run(calls((add, "a"), (add_and_fail, "b")))
    assert {str(outcome.error) for outcome in outcomes} == {"disk full"}
    assert published == names(connection) == []
    assert not connection.in_transaction


@pytest.mark.parametrize("careful", [0, 3])
def test_lost_transaction_fails_every_job(runner, connection, careful):
    runner.careful = careful
    outcomes, published = runner.run(calls((add, "a"), (add_and_lose, "b"), (add, "c")))
    assert {str(outcome.error) for outcome in outcomes} == {"disk full"}
    assert published == names(connection) == []
