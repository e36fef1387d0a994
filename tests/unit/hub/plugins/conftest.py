"""A workshop: a hub on a real file, and plugins in real processes that follow its log."""

import json
import os
import textwrap
from types import SimpleNamespace

import gevent
import msgspec
import pytest

from appliance.host import Host
from appliance.hub import wire as hub_wire
from appliance.hub.plugins import loops
from appliance.hub.plugins.settings import PluginSettings, PluginsSettings
from appliance.hub.plugins.source import PluginSource
from appliance.hub.plugins.subsystem import PluginsNeeds, PluginsSubsystem
from appliance.hub.plugins.worker import PluginWorker
from appliance.kernel.errors import ApplianceError
from appliance.settings import Settings
from appliance.workspace.datadir import DataDir
from tests.support.until import gevent_until

SECONDS_MAX = 20.0

# Marks every word `!x`; waits for the file `open` in its folder when a word is `wait`.
MARKS = """
import os, re, time
def enrich(message, config):
    text = message["content_raw"]
    while "wait" in text and not os.path.exists(config["gate"]):
        time.sleep(0.01)
    return [
        {"kind": "mark", "span": {"start": m.start(), "end": m.end()}, "data": {"word": m[0]}}
        for m in re.finditer(r"!\\w+", text)
    ]
def extract(message, config):
    return [
        {"kind": "mark", "value_json": one["data"], "dedupe_key": one["data"]["word"]}
        for one in enrich(message, config)
    ]
"""


class PluginEnvironment:
    """Plugins by name; the test calls their runners for each round."""

    def __init__(self, env, folder):
        self.env, self.hub, self.clock, self.store = env, env.hub, env.clock, env.store
        self.folder = folder
        self.data_dir = folder / ".agentlip"
        self.data_dir.mkdir(parents=True)
        for name in ("db.sqlite3", "token"):
            (self.data_dir / name).write_text("precious")
        (folder / "plugins").mkdir()
        self.gate = folder / "plugins" / "open"
        self.log = SimpleNamespace(lines=[])
        for level in ("debug", "info", "warning", "error"):
            setattr(self.log, level, self._logger(level))
        self.subsystem = None
        self.channel_id, self.topic_id = self.channel_with_topic("one")

    def _logger(self, level):
        def write(message, error=None, **fields):
            self.log.lines.append((level, message, fields))

        return write

    def channel_with_topic(self, name):
        channel = self.env.channel(name)
        return channel, self.env.topic(channel, "t")

    def topic(self, title):
        return self.env.topic(self.channel_id, title)

    # -- plugins -----------------------------------------------------------------------------

    def module(self, name, text):
        (self.folder / "plugins" / f"{name}.py").write_text(textwrap.dedent(text))
        return f"plugins/{name}.py"

    def use(self, *plugins, **settings):
        """Put plugins to work: PluginSettings, or (name, type, source, *settings as pairs)."""
        own = [
            plugin
            if isinstance(plugin, PluginSettings)
            else PluginSettings(
                plugin[0], plugin[1], module=self.module(plugin[0], plugin[2]),
                config={"gate": str(self.gate)}, read=("plugins",), **dict(plugin[3:]),
            )
            for plugin in plugins
        ]  # fmt: skip
        given = {"require_isolation": False, "urls": False, **settings}
        settings_ = msgspec.structs.replace(PluginsSettings(use=tuple(own)), **given)
        if self.subsystem is not None:
            self.subsystem.close(5)
        settings = msgspec.structs.replace(Settings(), plugins=settings_)
        datadir = DataDir(self.folder)
        host = Host(settings, Settings, {}, datadir, datadir, self.clock, self.log)
        self.subsystem = PluginsSubsystem(host, PluginsNeeds(self.hub))
        for runner in self.subsystem.runners:
            if not runner.plugin.broken:
                runner.run_once(self.clock.now_ms())
        return self

    def marks(self, type_="linkifier", name="marks", **own):
        return self.use((name, type_, MARKS, *own.items()))

    def runner(self, name=None):
        return next(
            runner for runner in self.subsystem.runners if name in (None, runner.plugin.name)
        )

    def round(self, name=None):
        return self.runner(name).run_once(self.clock.now_ms())

    def rounds(self):
        """Until nobody has anything left to do now."""
        for runner in self.subsystem.runners:
            while any(runner.run_once(self.clock.now_ms()).values()):
                pass

    def begin(self, name=None):
        """A round in the background; `finish` waits for it."""
        worker, self.asked = self.runner(name).plugin.worker, False
        ask = worker.ask

        def note_and_ask(message):
            self.asked = True
            return ask(message)

        worker.ask = note_and_ask
        return gevent.spawn(self.round, name)

    def finish(self, round_):
        self.gate.touch()
        round_.join(SECONDS_MAX)
        assert round_.ready()
        return round_.get()

    def until_asked(self, name=None):
        """Until the plugin's process has been given a message."""
        plugin = self.runner(name).plugin
        gevent_until(lambda: self.asked and plugin.worker.running and plugin.worker.isolation)
        reap()

    # -- messages ----------------------------------------------------------------------------

    def post(self, content="say !hi", topic=None):
        return self.env.post(topic or self.topic_id, content, "ci")["message"]["id"]

    def patch(self, message_id, command):
        return json.loads(self.hub.patch_message(message_id, command, self.env.alice).body)

    def edit(self, message_id, content):
        return self.patch(message_id, hub_wire.EditMessage(content))

    def delete(self, message_id):
        return self.patch(message_id, hub_wire.DeleteMessage("ci"))

    def move(self, message_id, topic):
        return self.patch(message_id, hub_wire.MoveMessage(topic, "one"))

    # -- what came of it -----------------------------------------------------------------------

    def words(self, message_id):
        """Words of the enrichments that the rows hold."""
        rows = self.env.rows(
            "SELECT data_json FROM enrichments WHERE message_id = ? ORDER BY rowid", message_id
        )
        return [json.loads(data)["word"] for (data,) in rows]

    def listed(self, message_id):
        rows = self.subsystem.plugins.enrichments(message_id)
        return [json.loads(bytes(row.data))["word"] for row in rows.enrichments]

    def attached(self, topic=None):
        rows = self.env.rows(
            "SELECT value_json FROM topic_attachments WHERE topic_id = ? ORDER BY id",
            topic or self.topic_id,
        )
        return [json.loads(value)["word"] for (value,) in rows]

    def published(self, name="message.enriched"):
        rows = self.env.rows("SELECT data_json FROM events WHERE name = ? ORDER BY 1", name)
        return [json.loads(data) for (data,) in rows]

    def cursor(self, name="marks"):
        return self.env.rows("SELECT cursor FROM x_plugin_cursors WHERE plugin = ?", name)[0][0]

    def ask(self, what, command):
        try:
            return getattr(self.subsystem.plugins, what)(command)
        except ApplianceError as error:
            return error

    def close(self):
        if self.subsystem is not None:
            self.subsystem.close(5)


@pytest.fixture
def plugin_env(env, tmp_path, enterable, monkeypatch):
    monkeypatch.setattr(loops, "CURSOR_SECONDS", 1e-9)
    made = PluginEnvironment(env, tmp_path / "workspace")
    yield made
    made.close()
    reap()


def reap():
    """Gives the loop the time to see which processes have ended."""
    gevent.sleep(0.05)


# -- a plugin that tries ---------------------------------------------------------------------

# every line of `attempts` is done by the plugin; it answers with what came of each.
ATTEMPTS = """
import json, os, socket, sys, ctypes, shutil
data, attempts, appliance = {data!r}, {attempts!r}, {appliance}
def enrich(message, config):
    out = {{}}
    for name, code in attempts.items():
        try:
            exec(code, {{**globals()}})
            out[name] = "done"
        except BaseException as error:
            out[name] = type(error).__name__
    return [out]
"""


@pytest.fixture
def data(tmp_path, enterable):
    """A data directory like any: its folder 0700, its files 0600."""
    folder = tmp_path / "workspace" / ".agentlip"
    folder.mkdir(parents=True, mode=0o700)
    for name in ("db.sqlite3", "server.json", "token"):
        (folder / name).write_text("precious")
        (folder / name).chmod(0o600)
    return folder


@pytest.fixture
def run(data):
    """Runs the tries in a plugin's process; what came of each, and its worker."""
    made = []

    def do(attempts, *, seconds=5.0, **own):
        plugin = PluginSettings("bad", "linkifier", module="bad.py", timeout_seconds=seconds, **own)
        settings = PluginsSettings(require_isolation=False)
        source = PluginSource(
            ATTEMPTS.format(data=str(data), attempts=attempts, appliance=os.getpid()), ""
        )
        made.append(PluginWorker(plugin, source, settings, data))
        reply = made[-1].ask(b'{"content_raw":"x"}')
        return msgspec.json.decode(reply)[0], made[-1]

    yield do
    for worker in made:
        worker.stop()
    reap()
