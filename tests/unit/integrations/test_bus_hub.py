"""Changes of workers become messages of a topic: each once, whatever happens in between."""

import io
import shutil
import sqlite3
from pathlib import Path

import pytest

from appliance.integrations.bus_hub import POSITION, BusTopicPoster
from appliance.kernel.log import Log
from appliance.kernel.store import Store
from appliance.kernel.writer import StoreSettings
from tests.support.bus import BusFixture
from tests.unit.hub.ask.conftest import new_file_in
from tests.unit.hub.conftest import FaultyRunner, HubEnvironment


class PosterFixture:
    def __init__(self, folder):
        self.folder = folder
        self.env = HubEnvironment(Path(new_file_in(folder / "hub")))
        self.open()

    def open(self):
        """Also a restart, for which the bus may be another file."""
        self.bus = BusFixture(self.folder)
        path, log = self.bus.paths.database, Log(io.BytesIO())
        self.store = Store("bus", path, StoreSettings(), self.env.clock, log)
        self.poster = BusTopicPoster(self.env.store, self.store, "team/states", self.env.clock, log)

    def close(self):
        self.store.close()
        self.bus.connection.close()

    def change(self, state, **more):
        payload = {"to": state, "from": None}
        self.bus.send("eve", "state_change", correlation_id="t1", payload=payload, **more)

    def run(self):
        return self.poster.run_once(self.env.clock.now_ms())["posted"]

    def posted(self):
        rows = self.env.rows("SELECT content_raw FROM messages ORDER BY id")
        return [content for (content,) in rows]


@pytest.fixture
def fixture(tmp_path):
    fixture = PosterFixture(tmp_path)
    yield fixture
    FaultyRunner.failure = None
    fixture.close()
    fixture.env.store.close()


def test_changes_from_the_first_round_on_are_posted_once(fixture):
    fixture.change("ASSIGNED")
    assert fixture.run() == 0
    fixture.change("WORKING")
    fixture.bus.send("eve", "note", payload="no change")
    assert (fixture.run(), fixture.run()) == (1, 0)
    fixture.close()
    fixture.open()
    fixture.change("IN_REVIEW")
    assert fixture.run() == 1
    assert fixture.posted() == ["t1: WORKING (eve)", "t1: IN_REVIEW (eve)"]


def test_payload_of_another_program_hides_nothing_behind_it(fixture):
    fixture.run()
    odd = "INSERT INTO messages (id, ts_ms, from_agent, type, payload) VALUES (?, 1, 'x', ?, ?)"
    fixture.bus.rows(odd, "o1", "state_change", "no json")
    fixture.change("WORKING")
    fixture.run()
    assert fixture.posted() == ["t1: WORKING (eve)"]


def test_failed_commit_keeps_the_position(fixture):
    fixture.run()
    fixture.change("WORKING")
    FaultyRunner.failure = sqlite3.OperationalError("disk I/O error")
    with pytest.raises(sqlite3.OperationalError):
        fixture.run()
    assert fixture.posted() == []
    FaultyRunner.failure = None
    fixture.run()
    assert fixture.posted() == ["t1: WORKING (eve)"]
    assert fixture.env.rows("SELECT value FROM meta WHERE key = ?", POSITION) == [("1",)]


def test_bus_that_was_made_again_is_read_from_its_beginning(fixture):
    for _ in range(3):
        fixture.bus.send("eve", "note", payload="old")
    fixture.run()
    fixture.close()
    shutil.rmtree(fixture.bus.paths.database.parent)
    fixture.open()
    fixture.change("ASSIGNED")
    fixture.run()
    assert fixture.posted() == ["t1: ASSIGNED (eve)"]
