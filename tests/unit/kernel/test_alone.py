"""Small writes of a store that is alone: when the loop commits them, and that they differ in
nothing else from those of the writer."""

import io
import os
import signal
import sqlite3
import tempfile
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import gevent
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.courier.journal import Journal
from appliance.kernel import alone
from appliance.kernel.alone import CALM, PROBE_EVERY
from appliance.kernel.batch import BatchRunner
from appliance.kernel.clock import SystemClock
from appliance.kernel.datadir import DataDir
from appliance.kernel.errors import Invalid
from appliance.kernel.log import Log
from appliance.kernel.schema import create_workspace
from appliance.kernel.store import Apart, Store
from appliance.kernel.trouble import StoreBusy, StoreClosed, StoreSuspect
from appliance.kernel.writer import StoreSettings
from tests.support import jobs
from tests.support.clock import FakeClock

QUICK_MS = 1e6  # any commit is quick enough, on any machine


class Shifted(SystemClock):
    """The loop's time of day, apart from the writer's process's by `ms`."""

    ms = 0

    def now_ms(self):
        return super().now_ms() + self.ms


class House:
    """A store whose writer is a process. `inline` counts what the loop committed."""

    def __init__(self, path, clock=None, **changed):
        house = self

        class Counting(BatchRunner):
            def run(self, calls):
                house.inline += 1
                return super().run(calls)

            def commit(self):
                house.before_commit()
                super().commit()

        self.path, self.inline, self.heard, self.restarts = path, 0, [], []
        self.before_commit = lambda: None
        self.clock = clock or Shifted()
        changed = {"free_bytes_min": 0, "inline_ms_max": QUICK_MS, **changed}
        self.store = Store(
            "test", path, msgspec.structs.replace(StoreSettings(), **changed), self.clock,
            Log(io.BytesIO()), self.heard.extend, Counting, apart=Apart(None, self.restarted),
        )  # fmt: skip
        self.journal = Journal(self.store)

    def restarted(self):
        """What another writer finds in the file, and what a small write hears meanwhile."""
        try:
            self.small("between two writers")
        except StoreBusy as error:
            self.restarts.append((self.rows(), error))

    def rows(self):
        return self.store.read(rows)

    def small(self, value="x"):
        return self.store.write_small(jobs.put, value)

    def calm_down(self):
        """So many writes, one after the other, that the loop takes the next one."""
        for _ in range(10 * CALM):
            before = self.inline
            self.small("calm")
            if self.inline > before:
                return
        raise AssertionError("the loop commits nothing")

    def does_inline(self, value="x"):
        before = self.inline
        self.small(value)
        return self.inline > before


def rows(reader):
    return [row[0] for row in reader.rows("SELECT v FROM t ORDER BY id", limit=100_000)]


def make_file(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, v TEXT NOT NULL)")


@pytest.fixture
def open_house(tmp_path):
    houses = []

    def open_(**changed):
        path = tmp_path / "store.sqlite3"
        make_file(path)
        houses.append(House(path, **changed))
        return houses[-1]

    yield open_
    for house in houses:
        house.store.close()


def wait_until(true, seconds=20):
    with gevent.Timeout(seconds):
        while not true():
            gevent.sleep(0.001)


def test_writes_one_by_one_are_committed_by_the_loop_and_told_before_they_return(
    open_house,
):
    house = open_house()
    for number in range(CALM):
        house.small(str(number))
    assert house.inline == 0
    house.before_commit = lambda: heard.append(list(house.heard))
    heard = []
    assert house.small("on the loop") == "on the loop"
    assert house.inline == 1
    assert "on the loop" not in heard[0], "nobody hears of it before the commit"
    assert house.heard[-1] == "on the loop"
    assert house.rows() == house.heard == [*map(str, range(CALM)), "on the loop"]


def test_now_and_then_the_writer_takes_one_to_see_whether_others_come(open_house):
    house = open_house(clock=FakeClock())
    house.calm_down()
    done = [house.does_inline() for _ in range(2 * (PROBE_EVERY + 1))]
    assert done.count(False) == 2
    house.clock.pass_seconds(alone.PROBE_SECONDS)
    assert not house.does_inline()
    assert house.does_inline()


def test_a_setting_of_nothing_leaves_all_to_the_writer(open_house):
    house = open_house(inline_ms_max=0.0)
    assert not any(house.does_inline() for _ in range(3 * CALM))


def test_behind_a_write_that_waits_the_writer_takes_all(open_house, tmp_path):
    house = open_house()
    house.calm_down()
    gate = tmp_path / "gate"
    waiting = house.store.begin([(jobs.hold, (str(gate),))])
    before = house.inline
    second = gevent.spawn(house.small, "second")
    wait_until(lambda: house.store.facts()["queue_jobs"] == 2)
    gate.touch()
    waiting.wait()
    assert second.get() == "second"
    assert house.inline == before
    assert not house.does_inline(), "company was there a moment ago"


def test_who_comes_in_the_same_turn_of_the_loop_is_company(open_house):
    house = open_house()
    house.calm_down()
    house.calm_down()
    gevent.sleep(0.002)
    before = house.inline
    many = [gevent.spawn(house.small, str(number)) for number in range(8)]
    gevent.joinall(many, raise_error=True)
    assert house.inline <= before + 1
    assert not house.does_inline()
    assert sorted(house.rows()[-9:-1]) == [str(number) for number in range(8)]


def test_slow_commits_turn_it_off_and_the_pause_grows(open_house):
    house = open_house(clock=FakeClock(), inline_ms_max=1.0)
    house.calm_down()
    pauses = []
    for _ in range(4):
        if len(pauses) == 3:
            house.clock.pass_seconds(2 * alone.PAUSE_SECONDS_MAX)
            house.calm_down()
        house.before_commit = lambda: house.clock.pass_seconds(0.1)
        slow = [house.does_inline() for _ in range(16)]
        assert 2 <= slow.count(True) <= 6, "one alone may be chance"
        assert not any(slow[-4:])
        house.before_commit = lambda: None
        slow_at = house.clock.monotonic()
        while not house.does_inline():
            house.clock.pass_seconds(0.0 if house.clock.monotonic() == slow_at else 0.25)
            for _ in range(8 * CALM):  # as after quick ones of the writer: the average recovers
                house.store._alone.probed(0.0, alone=True)
            house.clock.pass_seconds(0.25)
        pauses.append(house.clock.monotonic() - slow_at)
    assert pauses[0] >= alone.PAUSE_SECONDS
    assert all(2 * earlier <= later + 0.5 for earlier, later in pairwise(pauses[:3]))
    assert pauses[3] == pauses[0], "long ago is forgotten"


def test_a_turn_of_the_loop_holds_no_more_than_the_limit(open_house):
    house = open_house(clock=FakeClock(), inline_ms_max=1.0)
    for _ in range(4):
        house.calm_down()
    gevent.sleep(0.002)
    house.before_commit = lambda: house.clock.pass_seconds(0.0006)
    assert [house.does_inline() for _ in range(6)] == [True, True, False] * 2


def test_a_writer_that_is_slow_is_never_replaced_by_the_loop(open_house):
    house = open_house(clock=FakeClock(), inline_ms_max=1.0)
    slow = house.store.write

    def write(*call):
        house.clock.pass_seconds(0.002)
        return slow(*call)

    house.store.write = write
    assert not any(house.does_inline() for _ in range(5 * CALM))
    house.store.write = slow
    house.calm_down()


def test_the_loop_never_waits_for_the_lock_of_another(open_house):
    house = open_house()
    house.calm_down()
    connection = house.store._alone._runner.connection
    assert connection.execute("PRAGMA busy_timeout").fetchone() == (0,)
    with closing(sqlite3.connect(house.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        writing = gevent.spawn(house.small, "after the other")
        wait_until(lambda: house.store.facts()["queue_jobs"] == 1)
        other.execute("ROLLBACK")
    assert writing.get() == "after the other"
    assert house.rows()[-1] == house.heard[-1] == "after the other"
    assert house.heard.count("after the other") == 1


def test_during_upkeep_the_writer_takes_all(open_house):
    house = open_house(checkpoint_jobs=1)
    house.calm_down()
    folding = gevent.spawn(house.store.checkpoint)
    gevent.sleep(0)
    assert not house.does_inline()
    assert folding.get() is True
    house.calm_down()
    assert house.rows() == house.heard


def test_a_refused_write_of_the_loop_leaves_nothing(open_house):
    house = open_house()
    house.calm_down()
    before = house.rows()
    inline = house.inline
    with pytest.raises(Invalid):
        house.store.write_small(jobs.refuse, "b")
    assert house.inline == inline + 1
    assert house.rows() == before == house.heard
    assert house.does_inline()


def test_what_sqlite_refuses_the_loop_is_told_by_the_writer(open_house):
    house = open_house()
    house.calm_down()
    before, inline = house.rows(), house.inline
    with pytest.raises(sqlite3.IntegrityError):
        house.store.write_small(jobs.violate)
    assert house.inline == inline + 1
    house.before_commit = lost
    assert house.small("kept by the writer") == "kept by the writer"
    assert house.rows() == house.heard == [*before, "kept by the writer"]


def lost():
    raise sqlite3.OperationalError("disk I/O error")


def find_damage(_reader):
    error = sqlite3.DatabaseError("malformed")
    error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_CORRUPT, "SQLITE_CORRUPT"
    raise error


def test_a_stopped_store_refuses_the_loop_too(open_house):
    house = open_house()
    house.calm_down()
    with pytest.raises(StoreSuspect):
        house.store.read(find_damage)
    inline = house.inline
    with pytest.raises(StoreSuspect):
        house.small()
    assert house.inline == inline


def test_a_closed_store_refuses(open_house):
    house = open_house()
    house.calm_down()
    assert house.store.close()
    with pytest.raises(StoreClosed):
        house.small()


def test_a_writer_killed_meanwhile_takes_nothing_with_it_and_is_awaited(open_house):
    house = open_house()
    house.calm_down()
    os.kill(house.store._writer.pid, signal.SIGKILL)
    assert all(house.does_inline(f"value {n}") for n in range(3)), "its end is not noticed yet"
    told = list(house.heard)
    wait_until(lambda: house.restarts)
    assert [found for found, _ in house.restarts] == [told], "nothing but what was told before"
    wait_until(lambda: house.store.facts()["writer_alive"])
    house.calm_down()
    assert house.rows() == house.heard


def test_the_courier_finds_nothing_untold_after_its_writer_was_killed(tmp_path):
    datadir = DataDir(tmp_path)
    create_workspace(datadir, clock=SystemClock(), log=Log(io.BytesIO()))
    house = House(datadir.database("courier"))
    found = []
    house.store._writer._restarted = lambda: found.append(house.journal.rows())
    numbers = []
    try:
        while not found:
            if house.inline > 3 and house.store.facts()["writer_alive"]:
                os.kill(house.store._writer.pid, signal.SIGKILL)
            entry = ("s", f"e{len(numbers)}", b"{}", 4, None, 1, None, None)
            try:
                numbers += house.journal.append([entry], False)
            except StoreBusy:
                gevent.sleep(0.001)
        assert found == [[]]
        assert numbers == list(range(1, len(numbers) + 1))
    finally:
        house.store.close()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("small"), st.integers(1, 3 * CALM)),
        st.tuples(st.just("many"), st.integers(1, 5)),
        st.tuples(st.just("together"), st.integers(2, 5)),
        st.tuples(st.just("refused"), st.just(1)),
        st.tuples(st.just("fold"), st.just(1)),
        st.tuples(st.just("apart"), st.sampled_from([-5000, 0, 0, 5000])),
    ),
    min_size=3,
    max_size=12,
)


@pytest.fixture(scope="module")
def long_house():
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "store.sqlite3"
        make_file(path)
        house = House(path, checkpoint_jobs=1)
        house.small_before = 0
        yield house
        house.store.close()
        assert 0 < house.inline < len(house.heard), "both ways were taken"


@settings(deadline=None, max_examples=25)
@given(steps)
def test_ids_rise_and_nothing_is_lost_over_both_ways(long_house, steps):
    house, made = long_house, len(long_house.heard)
    for what, number in steps:
        if what == "small":
            for _ in range(number):
                house.store.write_small(jobs.put_id)
        elif what == "many":
            house.store.write_many([(jobs.put_id, ())] * number)
        elif what == "together":
            several = [gevent.spawn(house.store.write_small, jobs.put_id) for _ in range(number)]
            gevent.joinall(several, raise_error=True)
        elif what == "refused":
            with pytest.raises(Invalid):
                house.store.write_small(jobs.refuse, "x")
        elif what == "fold":
            house.store.checkpoint()
        else:
            house.clock.ms = number
        if what in ("small", "many", "together"):
            made += number
    stored = house.rows()
    assert stored == house.heard
    assert len(stored) == made
    assert stored == sorted(set(stored))
