"""The search index keeps up with the writer, whatever the load: nothing waits a second for it."""

import io
import random
import shutil
import sqlite3
from pathlib import Path

import msgspec
import pytest

from appliance.hub import wire, writes
from appliance.hub.loops import catch_up
from appliance.kernel.log import Log
from appliance.kernel.writer import StoreSettings, Writer
from tests.support.clock import FakeClock
from tests.support.database_files import execute

LAG_SECONDS_MAX = 1.0


class Load:
    """A writer with a catch-up, and the rows that it has committed."""

    def __init__(self, path):
        self.clock = FakeClock()
        store = msgspec.structs.replace(StoreSettings(), free_bytes_min=0, synchronous="OFF")
        log = Log(io.BytesIO())
        self.writer = Writer("hub", path, store, self.clock, log, catch_up=catch_up())
        self.reader = sqlite3.connect(path)
        body = self.run((writes.create_channel, (wire.CreateChannel("general"), None)))[0]
        channel = msgspec.json.decode(body.body)["channel"]["id"]
        body = self.run((writes.create_topic, (wire.CreateTopic(channel, "one"), None)))[0]
        self.topic = msgspec.json.decode(body.body)["topic"]["id"]
        self.committed = {}  # rowid → when

    def run(self, *calls):
        outcomes, _ = self.writer.run(calls)
        assert len(outcomes) == len(calls)
        return [outcome.unwrap() for outcome in outcomes]

    def post(self, count, text="some words"):
        calls = [(writes.create_message, (self.topic, "me", text, None))] * count
        self.run(*calls)
        (newest,) = self.reader.execute("SELECT max(rowid) FROM messages").fetchone()
        for number in range(len(self.committed) + 1, newest + 1):
            self.committed[number] = self.clock.monotonic()

    def marks(self):
        return self.reader.execute(
            "SELECT (SELECT indexed FROM x_fts), (SELECT indexed FROM x_cjk)"
        ).fetchone()

    def lag_seconds(self):
        """The age of the oldest message that is not in an index."""
        oldest = self.committed.get(min(self.marks()) + 1)
        return 0.0 if oldest is None else self.clock.monotonic() - oldest

    def close(self):
        self.reader.close()
        self.writer.close()


@pytest.fixture
def load(new_file, tmp_path):
    load = Load(Path(shutil.copy(new_file, tmp_path)))
    yield load
    load.close()


@pytest.mark.parametrize("seed", range(2))
def test_no_message_waits_a_second_under_a_load_without_pauses(load, seed):
    """Batches of any size, quick and slow disks, and bursts after silence."""
    rng = random.Random(seed)
    for _ in range(40):
        writes_each, seconds = rng.randrange(1, 65), rng.choice([0.001, 0.01, 0.1, 0.4])
        for _ in range(rng.randrange(1, 12)):
            load.clock.pass_seconds(seconds)
            assert load.lag_seconds() < LAG_SECONDS_MAX
            load.post(writes_each, rng.choice(["plain words", "部署失败"]))
        if rng.random() < 0.2:
            load.post(rng.randrange(200, 600))


def test_failed_catch_up_does_not_fail_writes(load):
    execute(load.writer._path, "DROP TABLE x_cjk")
    load.post(10)
    load.clock.pass_seconds(1)
    load.post(10)
    (count,) = load.reader.execute("SELECT count(*) FROM messages").fetchone()
    assert count == 20
