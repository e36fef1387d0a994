"""Files of a hub on a real workspace, and their collector."""

import hashlib
import time
from io import BytesIO

import msgspec
import pytest

from appliance.busfile.blobs import path_of
from appliance.busfile.file import BusPaths
from appliance.hub import wire
from appliance.hub.blobs.collector import Collector
from appliance.hub.blobs.service import Blobs, Body
from appliance.hub.blobs.settings import BlobSettings
from appliance.kernel.auth import Principal
from appliance.kernel.log import Log
from appliance.workspace import schema
from appliance.workspace.datadir import STORES, DataDir
from tests.support.bus import BusFixture
from tests.support.clock import FakeClock
from tests.unit.hub.conftest import FaultyRunner, HubEnvironment

DAY_SECONDS = 86_400
POSTS = frozenset({"hub:read", "hub:post"})


class BlobEnvironment(HubEnvironment):
    ann = Principal("tok_ann", "ann", POSTS)
    bob = Principal("tok_bob", "bob", POSTS)

    def __init__(self, workspace, **settings):
        self.datadir = DataDir(workspace)
        self.folder = BusPaths(workspace).blobs
        self.backs_up = False
        self.blob_settings = msgspec.structs.replace(BlobSettings(), **settings)
        super().__init__(self.datadir.database("hub"))

    def _open(self):
        # Removals are compared with the files' real times.
        self.clock = FakeClock(int((time.time() + DAY_SECONDS) * 1000))
        super()._open()
        self.hub.steady.open()
        self.blobs = Blobs(self.hub, self.datadir, self.blob_settings, lambda: self.backs_up)
        self.collector = Collector(self.blobs, self.datadir, self.blob_settings, self.clock)

    def put(self, content, principal=ann, media_type="text/plain", **more):
        body = Body(BytesIO(content).read, len(content), media_type, **more)
        return self.blobs.put(body, principal)

    def read(self, ref, principal=ann, start=0, stop=None):
        file = self.blobs.find(ref, principal)
        return b"".join(file.chunks(start, file.size if stop is None else stop))

    def file_of(self, ref):
        return path_of(self.folder, ref.removeprefix("sha256:"))

    def collect(self, days=0.0):
        """Rounds of the collector, `days` later, until its scan is done."""
        self.clock.pass_seconds(days * DAY_SECONDS)
        removed = self.collector.run(0)
        while self.collector._scan is not None:
            removed += self.collector.run(0)
        return removed

    def say(self, text, principal=ann):
        command = wire.CreateMessage(self.topic_id, principal.name, text)
        made = msgspec.json.decode(self.hub.create_message(command, principal).body)
        return made["message"]["id"]

    def delete(self, message_id, principal=ann):
        command = wire.DeleteMessage(principal.name, None)
        self.hub.patch_message(message_id, command, principal)


def ref_of(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


@pytest.fixture
def new_env(tmp_path):
    FaultyRunner.failure = FaultyRunner.gate = None
    environments = []

    def make(**settings):
        datadir = DataDir(tmp_path)
        log = Log(BytesIO())
        schema.create_workspace(datadir, clock=FakeClock(), log=log)
        for store in STORES:
            schema.migrate(datadir.database(store), store, clock=FakeClock(), log=log)
        BusFixture(tmp_path).connection.close()
        env = BlobEnvironment(tmp_path, **settings)
        env.channel_id = env.channel("general")
        env.topic_id = env.topic(env.channel_id, "builds")
        environments.append(env)
        return env

    yield make
    for env in environments:
        env.store.close()


@pytest.fixture
def env(new_env):
    return new_env()
