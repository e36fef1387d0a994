"""A hub on a real file with real threads, and a bare database for what needs no hub."""

import io
import json
import shutil
import sqlite3
from pathlib import Path

import msgspec
import pytest

from appliance.hub import events, wire
from appliance.hub.service import Hub
from appliance.hub.settings import HubSettings
from appliance.kernel.auth import ADMIN, Principal
from appliance.kernel.batch import BatchRunner, Tx
from appliance.kernel.feed import Feed
from appliance.kernel.ids import IdFactory
from appliance.kernel.log import Log
from appliance.kernel.loop_callbacks import allocate_lock
from appliance.kernel.reader import Reader
from appliance.kernel.store import Store
from appliance.kernel.writer import StoreSettings
from appliance.workspace import schema
from appliance.workspace.datadir import DataDir
from appliance.workspace.migration import load, statements
from tests.support.clock import FakeClock
from tests.support.database_files import execute


class Identity:
    instance_id = "instance-1"
    epoch = "epoch-1"
    started_ms = 0
    pid = 1
    version = "0"
    features = ()
    epochs: tuple[tuple[int, str], ...] = ()


class FaultyRunner(BatchRunner):
    """A runner whose commits fail or wait when the test says so."""

    failure = None
    gate = None

    def commit(self):
        if FaultyRunner.gate is not None:
            with FaultyRunner.gate:
                pass
        if FaultyRunner.failure is not None:
            raise FaultyRunner.failure
        super().commit()


class HubEnvironment:
    """A hub with its collaborators, and functions that read its tables from outside."""

    alice = Principal("alice", "alice", frozenset({ADMIN}))
    bob = Principal("bob", "bob", frozenset({ADMIN}))
    runner = FaultyRunner

    def __init__(self, path, **settings):
        self.clock = FakeClock()
        self.path = path
        self.published = []
        self.settings = msgspec.structs.replace(HubSettings(), **settings)
        self._open()

    def _open(self):
        self.feed = Feed()
        self.store = Store(
            "hub",
            self.path,
            msgspec.structs.replace(StoreSettings(), free_bytes_min=0, synchronous="OFF"),
            self.clock,
            Log(io.BytesIO()),
            publish=self._publish,
            runner=FaultyRunner,
        )
        self.hub = Hub(self.store, self.feed, self.settings, self.clock, Identity())

    def reopen(self):
        self.store.close()
        self._open()

    def _publish(self, items):
        self.published += items
        self.feed.publish(items)

    def rows(self, sql, *parameters):
        return execute(self.path, sql, *parameters)

    def channel(self, name):
        reply = self.hub.create_channel(wire.CreateChannel(name), self.alice)
        return json.loads(reply.body)["channel"]["id"]

    def topic(self, channel_id, title):
        reply = self.hub.create_topic(wire.CreateTopic(channel_id, title), self.alice)
        return json.loads(reply.body)["topic"]["id"]

    def post(self, topic_id, content="hello", sender="alice"):
        """What the hub replies, of which `message` and `event_id` are of use."""
        command = wire.CreateMessage(topic_id, sender, content)
        return json.loads(self.hub.create_message(command, self.alice).body)

    def everything(self):
        """All rows that a mutation could touch."""
        tables = ("channels", "topics", "messages", "events", "topic_attachments", "x_idempotency")
        return {table: self.rows(f"SELECT * FROM {table}") for table in tables}


class BareLog:
    """The tables in memory and a Tx to write events with, for queries alone."""

    def __init__(self):
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        for migration in load("hub"):
            for statement in () if migration.optional else statements(migration):
                self.connection.execute(statement)
        self.clock = FakeClock()
        self.tx = Tx(self.connection, self.clock, IdFactory(self.clock))
        self.tx.restart()
        self.reader = Reader(self.connection, self.clock)

    def event(self, channel_id=None, topic_id=None, topic_id2=None, name="message.created"):
        return events.append(
            self.tx, name, ("message", "m"), b'{"x":1}',
            channel_id=channel_id, topic_id=topic_id, topic_id2=topic_id2,
        )  # fmt: skip


@pytest.fixture(scope="session")
def new_file(tmp_path_factory):
    """The file of a hub that nothing has happened to, to be copied."""
    datadir = DataDir(tmp_path_factory.mktemp("new"))
    schema.create_workspace(datadir, clock=FakeClock(), log=Log(io.BytesIO()))
    return datadir.database("hub")


@pytest.fixture
def env(new_file, tmp_path):
    FaultyRunner.failure = FaultyRunner.gate = None
    env = HubEnvironment(Path(shutil.copy(new_file, tmp_path)))
    yield env
    FaultyRunner.failure = FaultyRunner.gate = None
    env.store.close()


@pytest.fixture
def new_env(new_file, tmp_path):
    """Makes one `HubEnvironment` with its own settings."""
    FaultyRunner.failure = FaultyRunner.gate = None
    environments = []

    def make(**settings):
        environments.append(HubEnvironment(Path(shutil.copy(new_file, tmp_path)), **settings))
        return environments[-1]

    yield make
    for env in environments:
        env.store.close()


@pytest.fixture
def gate(env):
    """Hold it, and the writer stops before its next commit."""
    FaultyRunner.gate = allocate_lock()
    return FaultyRunner.gate


@pytest.fixture
def bare_log():
    log = BareLog()
    yield log
    log.connection.close()


@pytest.fixture(scope="session")
def new_bare_log():
    """Makes bare logs, for tests that need one an example."""
    return BareLog


@pytest.fixture
def ids(env):
    """A channel, a topic, a message of alice's."""
    channel = env.channel("general")
    topic = env.topic(channel, "first")
    return channel, topic, env.post(topic)["message"]["id"]
