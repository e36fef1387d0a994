"""A repeated request gets the first reply; the same key with another request is refused."""

import sqlite3

import pytest

from appliance.kernel.batch import BatchRunner
from appliance.kernel.idempotency import Reply, forget_keys, reply_once, stored_reply
from appliance.kernel.ids import IdFactory
from appliance.workspace.migration import load
from tests.support.clock import FakeClock

REQUEST = ("tok_1", "POST", "/things", "key", "fingerprint")


@pytest.fixture
def write():
    """Runs a function in a transaction, as a store's writer does."""
    clock = FakeClock()
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for migration in load("outbox"):
        connection.executescript(migration.sql)
    runner = BatchRunner(connection, clock, IdFactory(clock))

    def run(function, *args):
        clock.pass_seconds(1)
        return runner.run([(function, args)])[0][0].unwrap()

    yield run
    connection.close()


def create(tx, body):
    return Reply(201, body)


def test_oldest_keys_are_forgotten_up_to_the_limit(write):
    for number in range(3):
        write(reply_once, (*REQUEST[:3], f"key{number}", "f"), create, b"")
    assert write(forget_keys, 1 << 60, 2) == 2
    left = [write(stored_reply, (*REQUEST[:3], f"key{n}", "f")) is not None for n in range(3)]
    assert left == [False, False, True]
    assert write(forget_keys, 0, 10) == 0
