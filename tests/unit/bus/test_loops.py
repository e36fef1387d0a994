"""The loops of a bus whose file other programs use."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from appliance.bus import loops, metrics
from appliance.bus.loops import BusMeter, BusPruner
from appliance.bus.settings import BusSettings
from appliance.busfile import claims, messages, workers
from appliance.busfile.file import BusPaths
from appliance.kernel.clock import DAY_MS
from appliance.kernel.metrics import REGISTRY
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


class ReadStore:
    """Reads a bus with the connection of a test."""

    def __init__(self, connection):
        self.execute = connection.execute

    @contextmanager
    def snapshot(self):
        yield

    def read_slow(self, function, *arguments):
        return function(self, *arguments)


def samples(name):
    (metric,) = (metric for metric in REGISTRY.collect() if metric.name == f"agentlip_bus_{name}")
    return {tuple(sample.labels.values()): sample.value for sample in metric.samples}


def test_meter_names_the_agents_for_which_most_messages_wait(tmp_path):
    bus = BusFixture(tmp_path)
    for number in range(1, 25):
        bus.run(messages.ack, NOW, f"agent-{number}", 0)
        for _ in range(number):
            bus.send(to_agent=f"agent-{number}")
    bus.send()
    bus.run(claims.claim, NOW, "ended", "ada", 1)
    bus.run(claims.claim, NOW, "held", "ada")
    bus.run(workers.create, NOW, "w", branch=None, actor="ada")
    BusMeter(ReadStore(bus.connection), None, None).run_once(NOW + 1)
    lags = samples("lag_messages")
    assert len(lags) == metrics.AGENTS_MAX + 1
    assert lags["agent-24",] == 26  # its own, one to all, and the state of the worker
    assert lags["",] == sum(range(1, 5)) + 4 * 2
    assert samples("stored_messages") == {(): sum(range(25)) + 2}
    assert samples("expired_claims") == {(): 1}
    assert samples("workers")["ASSIGNED",] == 1
    assert samples("workers")["WORKING",] == 0
