"""Levels, rows and the thread of heartbeats."""

import time
from functools import partial

from appliance.busfile import heartbeats
from appliance.busfile.file import transaction
from appliance.busfile.heartbeats import HeartbeatThread
from tests.support.bus import NOW
from tests.support.until import until


def test_age_is_never_negative():
    assert heartbeats.age_ms(NOW - 86_400_000, NOW) == 0, "the clock has gone back"


def row(bus):
    return bus.rows("SELECT status, current_task, progress FROM heartbeats")


def test_thread_writes_first_then_every_change_at_once_and_stops_at_once(bus):
    before = time.monotonic()
    with HeartbeatThread(
        partial(heartbeats.write, bus.paths, "a"), task="t", interval_seconds=600
    ) as thread:
        assert row(bus) == [("working", "t", None)]
        thread.report("blocked", "t", 0.25)
        until(lambda: row(bus) == [("blocked", "t", 0.25)])
    assert time.monotonic() - before < 60
    assert thread.stop()


def test_thread_repeats_while_the_agent_blocks(bus):
    with HeartbeatThread(partial(heartbeats.write, bus.paths, "a"), interval_seconds=0.01):
        query = "SELECT ts_ms FROM heartbeats"
        first = bus.rows(query)
        until(lambda: bus.rows(query) > first)


def test_thread_survives_a_failure_and_reports_it(bus):
    with HeartbeatThread(
        partial(heartbeats.write, bus.paths, "a"), interval_seconds=0.01
    ) as thread:
        with transaction(bus.connection):
            bus.connection.execute("ALTER TABLE heartbeats RENAME TO x_gone")
        until(lambda: thread.error is not None)
        with transaction(bus.connection):
            bus.connection.execute("ALTER TABLE x_gone RENAME TO heartbeats")
        until(lambda: thread.error is None)
