"""The inboxes of a hub on a real file, and their loop."""

import io
import json
import shutil
from pathlib import Path

import msgspec
import pytest

from appliance.hub import wire as hub_wire
from appliance.hub.entries import wire
from appliance.hub.entries.loops import EntryDeadlines
from appliance.hub.entries.service import Entries
from appliance.kernel.auth import Principal
from appliance.kernel.log import Log
from tests.unit.hub.conftest import FaultyRunner, HubEnvironment

SCOPES = frozenset({"hub:read", "hub:post"})


class EntriesEnvironment(HubEnvironment):
    agent = Principal("tok_agent", "agent", SCOPES)

    def _open(self):
        super()._open()
        self.hub.steady.open()
        self.entries = Entries(self.hub, self.clock)
        self.loop = EntryDeadlines(self.entries, self.clock, Log(io.BytesIO()))

    def begin(self):
        self.topic_id = self.topic(self.channel("general"), "builds")
        return self

    def send(self, text="look", sender="boss", topic_id=None, principal=agent, **more):
        command = {"topic_id": topic_id or self.topic_id, "sender": sender, "content_raw": text}
        command = msgspec.convert({**command, **more}, hub_wire.CreateMessage)
        return json.loads(self.hub.create_message(command, principal).body)

    def list(self, name, principal=agent, **more):
        return self.entries.list_entries(wire.EntriesQuery(name, **more), principal)

    def texts(self, name, **more):
        return [entry.message.content_raw for entry in self.list(name, **more).entries]

    def ack(self, name, *ids, principal=agent, **more):
        command = wire.Acknowledge(list(ids), name=name, **more)
        return json.loads(self.entries.acknowledge(command, principal).body)

    def decline(self, name, entry_id, reason="no"):
        command = wire.Decline(entry_id, reason, name)
        return json.loads(self.entries.decline(command, self.agent).body)

    def follow(self, name, topic_id=None):
        command = wire.FollowTopic(name)
        return json.loads(self.entries.follow(topic_id or self.topic_id, command, self.agent).body)

    def receipts(self, sent):
        return self.entries.receipts(sent["message"]["id"], self.agent).receipts

    def run_loop(self):
        return self.loop.run_once(self.clock.now_ms())

    def event_names(self):
        return [name for (name,) in self.rows("SELECT name FROM events ORDER BY event_id")]


@pytest.fixture
def env(new_file, tmp_path):
    FaultyRunner.failure = FaultyRunner.gate = None
    env = EntriesEnvironment(Path(shutil.copy(new_file, tmp_path))).begin()
    yield env
    env.store.close()
