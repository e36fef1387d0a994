"""Messages, plugins, clocks and crashes at random; then the log, the rows and the texts agree."""

import io
import json
import re
import shutil
import tempfile
from pathlib import Path

import gevent
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from appliance.hub.plugins.wire import ReEnrich
from appliance.kernel import schema
from appliance.kernel.datadir import DataDir
from appliance.kernel.log import Log
from tests.support.clock import FakeClock
from tests.unit.hub.conftest import House
from tests.unit.hub.plugins.conftest import MARKS, Workshop

pytestmark = pytest.mark.slow

PLACES = st.integers(0, 4)
WORDS = st.sampled_from(["!a", "!b", "!a !b", "plain", "!c\u0323é !d"])
STEPS = st.one_of(
    st.tuples(st.just("post"), WORDS),
    st.tuples(st.just("edit"), PLACES, WORDS),
    st.tuples(st.just("delete"), PLACES),
    st.tuples(st.just("move"), PLACES),
    st.tuples(st.just("pass"), st.sampled_from([0.3, 1.1, 5.0])),
    st.tuples(st.just("work"), st.sampled_from(["link", "pull"])),
    st.tuples(st.just("again"), st.integers(0, 30)),
    st.tuples(
        st.just("race"),
        st.sampled_from(["link", "pull"]),
        st.sampled_from(["edit", "move", "delete"]),
        WORDS,
    ),
    st.tuples(st.just("crash"), st.booleans()),
)


class World:
    """A workshop, and the texts that its messages have."""

    def __init__(self, house, folder):
        self.house = house
        self.shop = Workshop(house, folder)
        self.other = self.shop.topic("other")
        self.texts = {}  # None is a tombstone
        self.start()

    def start(self):
        self.shop.use(
            ("link", "linkifier", MARKS), ("pull", "extractor", MARKS), cursor_seconds=0.0
        )

    def chosen(self, place):
        """A message that is no tombstone, if there is one."""
        alive = [message for message, text in self.texts.items() if text is not None]
        return alive[place % len(alive)] if alive else None

    def step(self, what, *args):
        shop = self.shop
        if what == "post":
            self.texts[shop.post(args[0])] = args[0]
        elif what == "pass":
            shop.clock.pass_seconds(args[0])
        elif what == "work":
            shop.round(args[0])
        elif what == "again":
            shop.parts.plugins.re_enrich(ReEnrich(args[0]))
        elif what == "race":
            self.race(*args)
        elif what == "crash":
            self.crash(flushed=args[0])
        elif (message := self.chosen(args[0])) is not None:
            self.change(what, message, *args[1:])

    def change(self, what, message, text=None):
        shop = self.shop
        if what == "edit":
            shop.edit(message, text)
            self.texts[message] = text
        elif what == "delete":
            shop.delete(message)
            self.texts[message] = None
        elif what == "move":
            shop.move(message, self.other)

    def race(self, name, what, text):
        """The first message of the next round changes behind the plugin's back."""
        plugin = self.shop.runner(name).plugin
        work = plugin.work

        def racing(message):
            plugin.work = work
            found = work(message)
            self.change(what, message.id, text)
            return found

        plugin.work = racing
        self.shop.round(name)
        plugin.work = work

    def crash(self, flushed):
        """As a kill: processes end; the cursor is where it was stored last."""
        shop = self.shop
        if flushed:
            shop.parts.close(5)
        for runner in shop.parts.runners:
            runner.plugin.stop()
        shop.parts = None
        self.house.reopen()
        shop.hub, shop.store = self.house.hub, self.house.store
        self.start()

    def settle(self):
        for _ in range(3):
            self.shop.clock.pass_seconds(11)
            self.shop.rounds()


def words(text):
    return re.findall(r"!\w+", text or "")


@pytest.fixture(scope="module")
def empty_file(tmp_path_factory):
    """The file of a hub that nothing has happened to, to be copied."""
    datadir = DataDir(tmp_path_factory.mktemp("empty"))
    schema.create_workspace(datadir, clock=FakeClock(), log=Log(io.BytesIO()))
    return datadir.database("hub")


@settings(max_examples=15, deadline=None)
@given(st.lists(STEPS, min_size=8, max_size=20))
@example([("work", "link"), ("again", 0)])
@example([("work", "link"), ("edit", 0, "!b"), ("work", "link"), ("crash", False)])
@example([("race", "link", "move", "!b")])
@example([("race", "link", "edit", "!a")])
@example([("race", "pull", "move", "!b"), ("crash", True)])
@example([("race", "link", "edit", "plain"), ("race", "link", "delete", "")])
def test_whatever_happens_the_log_the_rows_and_the_texts_agree(empty_file, steps):
    with tempfile.TemporaryDirectory() as folder:
        house = House(Path(shutil.copy(empty_file, folder)))
        world = World(house, Path(folder) / "workspace")
        try:
            for step in [("post", "!a"), ("post", "!b !a"), *steps]:
                world.step(*step)
            world.settle()
            check(world)
        finally:
            world.shop.close()
            gevent.sleep(0.02)
            house.store.close()


def check(world):
    shop = world.shop
    told, texts, versions, attached = {}, {}, {}, []
    for name, entity, data in shop.house.rows(
        "SELECT name, entity_id, data_json FROM events ORDER BY event_id"
    ):
        data = json.loads(data)
        if name.startswith("message.") and name != "message.enriched":
            versions[entity] = data.get("version", 1)
        if name == "message.created":
            texts[entity] = data["message"]["content_raw"]
        elif name == "message.edited":
            texts[entity] = data["new_content"]
        elif name == "message.deleted":
            texts[entity] = None
        elif name == "message.enriched":
            found = [one["data"]["word"] for one in data["enrichments"]]
            assert found == words(texts[entity])  # of the text that it had just then
            assert data["version"] == versions[entity]
            assert told.get(entity) != (found, data["version"])  # nothing twice
            told[entity] = (found, data["version"])
        elif name == "topic.attachment_added":
            attachment = data["attachment"]
            key = (attachment["topic_id"], attachment["dedupe_key"])
            assert attachment["dedupe_key"] in words(texts[attachment["source_message_id"]])
            assert key not in attached
            attached.append(key)
    for message, text in world.texts.items():
        rows = shop.found(message)
        assert rows == (told[message][0] if message in told else [])
        if text is not None:
            assert rows == words(text)
        assert shop.shown(message) == words(text)
    stored = shop.house.rows("SELECT topic_id, dedupe_key FROM topic_attachments")
    assert sorted(stored) == sorted(attached)
    wanted = {word for text in world.texts.values() for word in words(text)}
    assert wanted <= {word for _, word in attached}
    for runner in shop.parts.runners:
        assert (runner.lag, runner.pending) == (0, 0)
    assert shop.house.rows("SELECT redo_cursor FROM x_plugin_cursors") == [(None,), (None,)]
