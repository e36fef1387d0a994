"""The life of a plugin's process: started for work, ended without it, replaced when used up."""

import pytest

from appliance.hub.plugins import plugin
from appliance.hub.plugins import worker as workers
from appliance.hub.plugins.settings import PluginSettings, PluginsSettings
from appliance.hub.plugins.source import PluginSource
from appliance.hub.plugins.worker import PluginFailure, PluginWorker
from tests.unit.hub.plugins.conftest import reap


@pytest.fixture
def worker(tmp_path):
    """Makes workers of a module's source."""
    made = []

    def make(text, type_="linkifier", **settings):
        own = PluginSettings("p", type_, **settings)
        general = PluginsSettings(require_isolation=False)
        made.append(PluginWorker(own, PluginSource(text, ""), general, tmp_path / ".agentlip"))
        return made[-1]

    yield make
    for process in made:
        process.stop()
    reap()


def failing(worker, message=b"{}"):
    with pytest.raises(PluginFailure) as failed:
        worker.ask(message)
    return failed.value


def test_process_runs_only_while_there_is_work(plugin_env):
    plugin_env.marks()
    process = plugin_env.runner().plugin.worker
    assert not process.running
    plugin_env.post("!word")
    plugin_env.rounds()
    plugin_env.clock.pass_seconds(59)
    plugin_env.round()
    assert process.running
    plugin_env.clock.pass_seconds(2)
    plugin_env.round()
    assert not process.running
    message = plugin_env.post("!again")
    plugin_env.rounds()
    assert plugin_env.words(message) == ["!again"]


def test_arguments_are_fresh_for_each_message(worker):
    text = (
        "count = 0\ndef enrich(message, config):\n"
        "    global count; count += 1\n"
        "    message['a'] = config['b'] = 1\n"
        "    return [count, len(message), len(config)]\n"
    )
    process = worker(text)
    assert bytes(process.ask(b'{"x":1}')) == b"[1,2,1]"
    assert bytes(process.ask(b'{"x":1}')) == b"[2,2,1]"


def test_plugin_version_is_shown(worker):
    process = worker("VERSION = '1.2'\ndef enrich(message, config): return []")
    process.start()
    assert process.version == "1.2"


FAULTS = {
    "not a list": ("return {}", "error", "NotAList"),
    "a coroutine": ("return (lambda: (yield))()", "error", "NotAList"),
    "no JSON": ("return [object()]", "error", "TypeError"),
    "not a number": ("return [float('nan')]", "error", "ValueError"),
    "too large": ("return ['x' * 300_000]", "too_large", None),
    "an exit": ("raise SystemExit", "error", "SystemExit"),
    "no memory": ("bytearray(10**9)", "error", "MemoryError"),
    "too deep": ("return enrich(message, config)", "error", "RecursionError"),
    "a strange class": ("raise type('a b\\n' * 99, (Exception,), {})", "error", "Exception"),
}


@pytest.mark.parametrize(("code", "outcome", "kind"), FAULTS.values(), ids=FAULTS)
def test_error_is_reported_by_class_and_line_only(worker, code, outcome, kind):
    process = worker(f"def enrich(message, config):\n    {code}\n")
    failure = failing(process, b'{"content_raw":"a secret"}')
    assert failure.outcome == outcome
    assert not failure.passing
    assert failure.where.get("error_type") == kind
    assert "secret" not in failure.message
    assert "\n" not in failure.message


def test_unrequested_response_is_refused(worker):
    """It can find the line, and then hurts only itself."""
    text = (
        "import os, stat\ndef enrich(message, config):\n"
        "    line = next(n for n in range(3, 64) if stat.S_ISSOCK(os.fstat(n).st_mode))\n"
        "    os.write(line, b'rubbish\\n')\n"
        "    return []\n"
    )
    process = worker(text)
    assert failing(process).outcome == "invalid"
    assert not process.running


def test_module_that_hangs_while_loading_times_out(worker, monkeypatch):
    monkeypatch.setattr(workers, "LOAD_SECONDS", 0.5)
    process = worker("while True: pass")
    failure = failing(process)
    assert (failure.outcome, failure.passing) == ("timeout", True)
    assert not process.running


def test_pauses_double_up_to_their_limit(plugin_env, monkeypatch):
    monkeypatch.setattr(plugin, "FAILURES_MAX", 1)
    text = "def enrich(message, config): raise ValueError"
    plugin_env.use(("bad", "linkifier", text))
    breaker = plugin_env.runner().plugin.breaker
    for pause in (30, 60, 120, 240, 480, 600, 600):
        plugin_env.post("!word")
        plugin_env.round()
        assert breaker.seconds_left(plugin_env.clock.monotonic()) == pause
        plugin_env.clock.pass_seconds(pause)
