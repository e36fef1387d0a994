"""The asks of a hub on a real file, and their loop."""

import io
import json
import shutil
from pathlib import Path

import msgspec
import pytest

from appliance.hub.ask import wire
from appliance.hub.ask.loops import Deadlines
from appliance.hub.ask.service import Asks
from appliance.kernel.auth import Principal
from appliance.kernel.log import Log
from appliance.workspace import schema
from appliance.workspace.datadir import DataDir
from tests.support.clock import FakeClock
from tests.unit.hub.conftest import FaultyRunner, HubEnvironment


class AskEnvironment(HubEnvironment):
    agent = Principal("tok_agent", "agent", frozenset({"hub:read", "hub:post"}))
    person = Principal("tok_person", "person", frozenset({"hub:read", "ask:answer"}))

    def _open(self):
        super()._open()
        log = Log(io.BytesIO())
        self.asks = Asks(self.hub, self.clock)
        self.asks.steady.open()
        self.loop = Deadlines(self.asks, self.clock, log)

    def ask(self, text="Deploy?", key=None, principal=agent, **more):
        command = msgspec.convert({"text": text, "sender": "agent", **more}, wire.CreateAsk)
        return json.loads(self.asks.create(command, principal, key).body)["ask"]

    def answer(self, ask_id, text, principal=person, key=None):
        reply = self.asks.answer(ask_id, wire.AnswerAsk(text), principal, key)
        return json.loads(reply.body)["ask"]

    def cancel(self, ask_id, principal=agent):
        return json.loads(self.asks.cancel(ask_id, wire.CancelAsk(), principal).body)["ask"]

    def show(self, ask_id):
        return self.asks.show(ask_id, 0, self.person).ask

    def run_loop(self):
        return self.loop.run_once(self.clock.now_ms())

    def messages(self):
        rows = self.rows("SELECT sender, content_raw FROM messages ORDER BY id")
        return [(sender, content.partition("\n")[0]) for sender, content in rows]


def new_file_in(folder):
    datadir = DataDir(folder)
    schema.create_workspace(datadir, clock=FakeClock(), log=Log(io.BytesIO()))
    return datadir.database("hub")


@pytest.fixture(scope="session")
def new_file(tmp_path_factory):
    return new_file_in(tmp_path_factory.mktemp("new"))


@pytest.fixture
def env(new_file, tmp_path):
    FaultyRunner.failure = FaultyRunner.gate = None
    env = AskEnvironment(Path(shutil.copy(new_file, tmp_path)))
    yield env
    FaultyRunner.failure = FaultyRunner.gate = None
    env.store.close()
