"""The pruning of a bus whose file other programs use."""

import fcntl
from types import SimpleNamespace

import pytest

from appliance.bus import loops
from appliance.bus.loops import BusPruner
from appliance.bus.settings import BusSettings
from appliance.busfile.file import BusPaths
from appliance.kernel.clock import DAY_MS
from tests.support.bus import NOW, BusFixture

NOTHING = {"messages": 0, "vacuums": 0}


@pytest.fixture
def pruner(tmp_path, monkeypatch):
    monkeypatch.setattr(loops, "in_thread", lambda function, *arguments: function(*arguments))
    clock = SimpleNamespace(now_ms=lambda: NOW + 31 * DAY_MS)
    return BusPruner(BusPaths(tmp_path), BusSettings(), lambda: 90, clock, None)


def test_pruner_stops_at_the_segments_and_returns_space(pruner, tmp_path):
    bus = BusFixture(tmp_path)
    for _ in range(100):
        bus.send(payload="x" * 4000)
    ((pages,),) = bus.rows("PRAGMA page_count")
    assert pruner.run_once(NOW) == {"messages": 90, "vacuums": 1}
    assert bus.rows("PRAGMA page_count")[0][0] < pages / 2
    assert pruner.run_once(NOW) == NOTHING


def test_pruner_leaves_a_busy_file_alone(pruner, tmp_path, monkeypatch):
    monkeypatch.setattr("appliance.busfile.file.BUSY_TIMEOUT_MS", 50)
    bus = BusFixture(tmp_path)
    for _ in range(100):
        bus.send(payload="x" * 4000)
    bus.connection.execute("BEGIN IMMEDIATE")
    assert pruner.run_once(NOW) == NOTHING
    bus.connection.execute("ROLLBACK")
    assert pruner.run_once(NOW) == {"messages": 90, "vacuums": 1}


def test_pruner_exports_what_it_prunes(pruner, tmp_path):
    settings = BusSettings(export=True)
    pruner = BusPruner(BusPaths(tmp_path), settings, lambda: None, pruner.clock, None)
    bus = BusFixture(tmp_path)
    bus.send()
    assert pruner.run_once(NOW)["messages"] == 1
    assert len(bus.paths.export.read_text().splitlines()) == 1
    bus.send()
    with bus.paths.export.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # another program exports
        assert pruner.run_once(NOW) == NOTHING
