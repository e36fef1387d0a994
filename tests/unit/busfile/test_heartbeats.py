"""The age of a heartbeat, and a thread whose writes fail."""

from functools import partial

from appliance.busfile import file, heartbeats
from appliance.busfile.file import transaction
from appliance.busfile.heartbeats import HeartbeatThread
from tests.support.bus import NOW
from tests.support.until import until


def test_age_is_never_negative():
    assert heartbeats.age_ms(NOW - 86_400_000, NOW) == 0, "the clock has gone back"


def test_thread_survives_a_failure_and_reports_it(bus, monkeypatch):
    monkeypatch.setattr(file, "BUSY_TIMEOUT_MS", 100)
    with HeartbeatThread(
        partial(heartbeats.write, bus.paths, "a"), interval_seconds=0.01
    ) as thread:
        with transaction(bus.connection):
            bus.connection.execute("ALTER TABLE heartbeats RENAME TO x_gone")
        until(lambda: thread.error is not None)
        with transaction(bus.connection):
            bus.connection.execute("ALTER TABLE x_gone RENAME TO heartbeats")
        until(lambda: thread.error is None)
    assert thread.stop()
