"""Catch-ups of a hub on a real file, with asks, inboxes, and claims as a list."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from appliance.hub import wire as hub_wire
from appliance.hub.ask.service import Asks
from appliance.hub.ask.wire import CreateAsk
from appliance.hub.catchup import wire
from appliance.hub.catchup.service import CatchUps
from appliance.kernel.auth import ADMIN, Principal
from tests.unit.hub.conftest import FaultyRunner, HubEnvironment


class Claims:
    scope = "bus:read"

    def __init__(self):
        self.claims = []

    def own(self, name, limit):
        return self.claims[:limit]


class CatchUpEnvironment(HubEnvironment):
    agent = Principal("tok_agent", "agent", frozenset({"hub:read", "hub:post", "bus:read"}))
    admin = Principal("tok_admin", "admin", frozenset({ADMIN}))

    def _open(self):
        super()._open()
        self.hub.steady.open()
        self.claims = Claims()
        self.asks = Asks(self.hub, self.clock)
        self.catch_ups = CatchUps(self.hub, self.claims)

    def begin(self):
        self.channel_id = self.channel("general")
        self.topic_id = self.topic(self.channel_id, "builds")
        return self

    def ask(self, text="Deploy?", **more):
        command = msgspec.convert({"text": text, "sender": "boss", **more}, CreateAsk)
        return json.loads(self.asks.create(command, self.admin).body)["ask"]["id"]

    def send(self, text="look", topic_id=None, **more):
        command = {"topic_id": topic_id or self.topic_id, "sender": "boss", "content_raw": text}
        command = msgspec.convert({**command, **more}, hub_wire.CreateMessage)
        return json.loads(self.hub.create_message(command, self.admin).body)["message"]["id"]

    def catch_up(self, name="ada", principal=admin, **more):
        return self.catch_ups.catch_up(wire.CatchUpQuery(name, **more), principal)

    def part(self, part, **more):
        (shown,) = (each for each in self.catch_up(**more).parts if each.part == part)
        return shown

    def lines(self, part, **more):
        return [item.line for item in self.part(part, **more).items]

    def change(self, verb, note="done", topic_id=None, principal=agent, key=None, **more):
        kind = wire.WriteHandoff if verb == "write_handoff" else wire.ChangeTopic
        command = msgspec.convert({"note": note, "name": "ada", **more}, kind)
        reply = getattr(self.catch_ups, verb)(topic_id or self.topic_id, command, principal, key)
        return json.loads(reply.body)

    def pin(self, message_id, verb="pin", principal=agent):
        change = getattr(self.catch_ups, verb)
        return json.loads(change(message_id, wire.PinMessage("ada"), principal).body)

    def event_names(self):
        return [name for (name,) in self.rows("SELECT name FROM events ORDER BY event_id")]


@pytest.fixture
def env(new_file, tmp_path):
    FaultyRunner.failure = FaultyRunner.gate = None
    env = CatchUpEnvironment(Path(shutil.copy(new_file, tmp_path))).begin()
    yield env
    env.store.close()
