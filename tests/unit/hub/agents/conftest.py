"""Agents of a hub on a real file."""

import shutil
from pathlib import Path

import pytest

from appliance.hub.agents import wire
from appliance.hub.agents.service import Agents
from tests.unit.hub.conftest import FaultyRunner
from tests.unit.hub.entries.conftest import EntriesEnvironment


class AgentsEnvironment(EntriesEnvironment):
    def _open(self):
        super()._open()
        self.agents = Agents(self.hub)

    def report(self, run_id="r1", state="asleep", name="ada", **more):
        return self.agents.report(name, wire.Report(run_id, state, **more), self.agent)

    def pause(self, **more):
        return self.agents.pause("ada", wire.PauseAgent(**more), self.alice)

    def resume(self):
        return self.agents.resume("ada", wire.ResumeAgent(), self.alice)

    def shown(self):
        return self.agents.list_agents(wire.AgentsQuery()).agents


@pytest.fixture
def env(new_file, tmp_path):
    FaultyRunner.failure = FaultyRunner.gate = None
    env = AgentsEnvironment(Path(shutil.copy(new_file, tmp_path))).begin()
    yield env
    env.store.close()
