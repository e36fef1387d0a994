"""Pauses and ceilings of a hub on a real file."""

import io
import shutil
from pathlib import Path

import msgspec
import pytest

from appliance.hub.agents.service import Agents
from appliance.hub.bounds import wire
from appliance.hub.bounds.loops import PauseDeadlines
from appliance.hub.bounds.service import Bounds
from appliance.kernel.log import Log
from tests.unit.hub.conftest import FaultyRunner
from tests.unit.hub.entries.conftest import EntriesEnvironment


class FakeAsks:
    """Questions that a test answers."""

    def __init__(self):
        self.asked, self.answers, self.cancelled = [], {}, []

    def ask(self, pause):
        self.asked.append(pause)
        return f"ask_{pause.id}"

    def answer(self, ask_id):
        return self.answers.get(ask_id)

    def cancel(self, ask_id):
        self.cancelled.append(ask_id)


class BoundsEnvironment(EntriesEnvironment):
    def _open(self):
        super()._open()
        self.asks = FakeAsks()
        self.agents = Agents(self.hub)
        self.bounds = Bounds(self.hub, self.clock, self.asks)
        self.bounds_loop = PauseDeadlines(self.bounds, self.clock, Log(io.BytesIO()))

    def pause(self, key=None, **command):
        reply = self.bounds.pause(msgspec.convert(command, wire.BeginPause), self.alice, key)
        return msgspec.json.decode(reply.body, type=wire.PauseChanged).pause

    def resume(self, **command):
        reply = self.bounds.resume(msgspec.convert(command, wire.EndPause), self.alice)
        return msgspec.json.decode(reply.body, type=wire.PauseChanged).pause

    def ceiling(self, name, **limits):
        self.bounds.set_ceiling(wire.SetCeiling(name, **limits), self.alice)

    def paused(self):
        return [pause.subject for pause in self.bounds.list_pauses(wire.PausesQuery()).pauses]

    def round(self):
        return self.bounds_loop.run_once(self.clock.now_ms())


@pytest.fixture
def env(new_file, tmp_path):
    FaultyRunner.failure = FaultyRunner.gate = None
    env = BoundsEnvironment(Path(shutil.copy(new_file, tmp_path))).begin()
    yield env
    env.store.close()
