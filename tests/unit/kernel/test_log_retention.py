"""The log of a store: old rows go, in steps; a clock that is set deletes nothing early."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.kernel import log_retention
from appliance.kernel.log import Log
from appliance.kernel.log_retention import MARKS, LogPruner
from appliance.kernel.steady_clock import SteadyClock
from appliance.kernel.store import Store
from appliance.kernel.writer import StoreSettings
from appliance.workspace import schema
from tests.support.clock import FakeClock

DAY_SECONDS = 86_400
INSERT = (
    "INSERT INTO log (at_ms, name, message_id, client_message_id, mesh, target, route,"
    " destination_kind, destination_ref, priority, accepted_ms)"
    " VALUES (?, 'send.accepted', 'm', 'c', 'lab', 'broker', 'r', 'dm', 'x', 'next', 1)"
)


def insert(tx, count):
    tx.executemany(INSERT, [(tx.now_ms,)] * count)


class RetentionFixture:
    """The outbox's log with 7 days, on a clock that is set."""

    def __init__(self, folder):
        self.clock = FakeClock()
        self.log = Log(io.BytesIO())
        path = folder / "outbox.sqlite3"
        schema.migrate(path, "outbox", clock=self.clock, log=self.log)
        settings = StoreSettings(free_bytes_min=0, synchronous="OFF")
        self.store = Store("outbox", path, settings, self.clock, self.log)
        self.restart()

    def restart(self):
        steady = SteadyClock(self.store, self.clock, self.log)
        steady.open()
        self.loop = LogPruner(self.store, steady, self.clock, self.log)

    def add(self, count=1):
        self.store.write(insert, count)

    def prune(self):
        return self.loop.run_once(self.clock.now_ms())["deleted"]

    def numbers(self):
        rows = self.store.read(lambda r: r.execute("SELECT event_id FROM log").fetchall())
        return [number for (number,) in rows]

    def pass_days(self, days):
        """A round every hour."""
        for _ in range(int(days * 24)):
            self.clock.pass_seconds(3600)
            self.prune()


@pytest.fixture
def retention(tmp_path):
    fixture = RetentionFixture(tmp_path)
    yield fixture
    assert fixture.store.close()


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("jump_days", [400, -400])
def test_setting_the_clock_deletes_nothing_early_and_keeps_nothing(retention, jump_days, restarted):
    retention.add(3)
    retention.prune()
    retention.pass_days(1)
    retention.clock.ms += jump_days * DAY_SECONDS * 1000
    if restarted:
        retention.restart()
    retention.prune()
    retention.add()
    retention.pass_days(5.9)
    assert retention.numbers() == [1, 2, 3, 4]
    retention.pass_days(0.3)
    assert retention.numbers() == [4]
    retention.pass_days(1.1)
    assert retention.numbers() == []


@given(steps=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 50)), max_size=300))
def test_marks_are_few_and_expire_no_row_early(steps):
    keep_ms, age_ms, newest = 10_000, 0, 0
    written = {0: 0}  # event → age
    marks = ()
    for passed, added in steps:
        age_ms += passed
        for _ in range(added):
            newest += 1
            written[newest] = age_ms
        marks = log_retention.advance(marks, age_ms, newest, keep_ms)
        assert len(marks) <= 2 * MARKS
        until = log_retention.expired(marks, age_ms, keep_ms)
        assert not until or written[until] <= age_ms - keep_ms
