"""Messages, plugins, clocks and crashes at random; then the log, the rows and the texts agree."""

import io
import json
import re
import shutil
import tempfile
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from appliance.hub.plugins import loops
from appliance.hub.plugins.wire import ReEnrich
from appliance.kernel.log import Log
from appliance.workspace import schema
from appliance.workspace.datadir import DataDir
from tests.support.clock import FakeClock
from tests.unit.hub.conftest import HubEnvironment
from tests.unit.hub.plugins.conftest import MARKS, PluginEnvironment, reap

pytestmark = pytest.mark.slow

TOPIC_NAMES = st.integers(0, 4)
WORDS = st.sampled_from(["!a", "!b", "!a !b", "plain", "!c\u0323é !d"])
STEPS = st.one_of(
    st.tuples(st.just("post"), WORDS),
    st.tuples(st.just("edit"), TOPIC_NAMES, WORDS),
    st.tuples(st.just("delete"), TOPIC_NAMES),
    st.tuples(st.just("move"), TOPIC_NAMES),
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

    def __init__(self, hub_env, folder):
        self.hub_env = hub_env
        self.plugins_env = PluginEnvironment(hub_env, folder)
        self.other = self.plugins_env.topic("other")
        self.texts = {}  # None is a tombstone
        self.start()

    def start(self):
        self.plugins_env.use(("link", "linkifier", MARKS), ("pull", "extractor", MARKS))

    def chosen(self, position):
        """A message that is not a tombstone, if there is one."""
        alive = [message for message, text in self.texts.items() if text is not None]
        return alive[position % len(alive)] if alive else None

    def step(self, what, *args):
        plugins_env = self.plugins_env
        if what == "post":
            self.texts[plugins_env.post(args[0])] = args[0]
        elif what == "pass":
            plugins_env.clock.pass_seconds(args[0])
        elif what == "work":
            plugins_env.round(args[0])
        elif what == "again":
            plugins_env.subsystem.plugins.re_enrich(ReEnrich(args[0]))
        elif what == "race":
            self.race(*args)
        elif what == "crash":
            self.crash(flushed=args[0])
        elif (message := self.chosen(args[0])) is not None:
            self.change(what, message, *args[1:])

    def change(self, what, message, text=None):
        plugins_env = self.plugins_env
        if what == "edit":
            plugins_env.edit(message, text)
            self.texts[message] = text
        elif what == "delete":
            plugins_env.delete(message)
            self.texts[message] = None
        elif what == "move":
            plugins_env.move(message, self.other)

    def race(self, name, what, text):
        """The first message of the next round changes behind the plugin's back."""
        plugin = self.plugins_env.runner(name).plugin
        work = plugin.work

        def racing(message):
            plugin.work = work
            results = work(message)
            self.change(what, message.id, text)
            return results

        plugin.work = racing
        self.plugins_env.round(name)
        plugin.work = work

    def crash(self, flushed):
        """As a kill: processes end; the cursor is where it was stored last."""
        plugins_env = self.plugins_env
        if flushed:
            plugins_env.subsystem.close(5)
        for runner in plugins_env.subsystem.runners:
            runner.plugin.stop()
        plugins_env.subsystem = None
        self.hub_env.reopen()
        plugins_env.hub, plugins_env.store = self.hub_env.hub, self.hub_env.store
        self.start()

    def settle(self):
        for _ in range(3):
            self.plugins_env.clock.pass_seconds(11)
            self.plugins_env.rounds()


def words(text):
    return re.findall(r"!\w+", text or "")


@pytest.fixture(scope="module")
def empty_file(tmp_path_factory):
    """The file of a hub that nothing has happened to, to be copied."""
    datadir = DataDir(tmp_path_factory.mktemp("empty"))
    schema.create_workspace(datadir, clock=FakeClock(), log=Log(io.BytesIO()))
    return datadir.database("hub")


@settings(max_examples=8, deadline=None)
@given(st.lists(STEPS, min_size=8, max_size=20))
@example([("work", "link"), ("again", 0)])
@example([("work", "link"), ("edit", 0, "!b"), ("work", "link"), ("crash", False)])
@example([("race", "link", "move", "!b")])
@example([("race", "link", "edit", "!a")])
@example([("race", "pull", "move", "!b"), ("crash", True)])
@example([("race", "link", "edit", "plain"), ("race", "link", "delete", "")])
def test_whatever_happens_the_log_the_rows_and_the_texts_agree(empty_file, steps):
    with tempfile.TemporaryDirectory() as folder, patch.object(loops, "CURSOR_SECONDS", 0.0):
        hub_env = HubEnvironment(Path(shutil.copy(empty_file, folder)))
        world = World(hub_env, Path(folder) / "workspace")
        try:
            for step in [("post", "!a"), ("post", "!b !a"), *steps]:
                world.step(*step)
            world.settle()
            check(world)
        finally:
            world.plugins_env.close()
            reap()
            hub_env.store.close()


def check(world):
    plugins_env = world.plugins_env
    output, texts, versions, attached = {}, {}, {}, []
    for name, entity, data in plugins_env.env.rows(
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
            results = [item["data"]["word"] for item in data["enrichments"]]
            assert results == words(texts[entity])  # those of its text at that time
            assert data["version"] == versions[entity]
            assert output.get(entity) != (results, data["version"])  # nothing twice
            output[entity] = (results, data["version"])
        elif name == "topic.attachment_added":
            attachment = data["attachment"]
            key = (attachment["topic_id"], attachment["dedupe_key"])
            assert attachment["dedupe_key"] in words(texts[attachment["source_message_id"]])
            assert key not in attached
            attached.append(key)
    for message, text in world.texts.items():
        rows = plugins_env.words(message)
        assert rows == (output[message][0] if message in output else [])
        if text is not None:
            assert rows == words(text)
        assert plugins_env.listed(message) == words(text)
    stored = plugins_env.env.rows("SELECT topic_id, dedupe_key FROM topic_attachments")
    assert sorted(stored) == sorted(attached)
    wanted = {word for text in world.texts.values() for word in words(text)}
    assert wanted <= {word for _, word in attached}
    for runner in plugins_env.subsystem.runners:
        assert (runner.lag, runner.pending) == (0, 0)
    assert plugins_env.env.rows("SELECT redo_cursor FROM x_plugin_cursors") == [(None,), (None,)]
