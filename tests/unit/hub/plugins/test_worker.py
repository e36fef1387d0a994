"""The life of a plugin's process: started for work, ended without it, replaced when used up."""

import gevent
import pytest

from appliance.hub.plugins.settings import PluginSettings, PluginsSettings
from appliance.hub.plugins.source import Source
from appliance.hub.plugins.worker import Failure, Worker


@pytest.fixture
def worker(tmp_path):
    """Makes workers of a module's source."""
    made = []

    def make(text, type_="linkifier", **settings):
        own = PluginSettings("p", type_)
        general = PluginsSettings(require_isolation=False, **settings)
        made.append(Worker(own, Source(text, ""), general, tmp_path / ".agentlip"))
        return made[-1]

    yield make
    for one in made:
        one.stop()
    gevent.sleep(0.05)


def failing(worker, message=b"{}"):
    with pytest.raises(Failure) as failed:
        worker.ask(message)
    return failed.value


def test_nothing_runs_before_there_is_work_and_nothing_long_after_it(workshop):
    workshop.marks(idle_seconds=60.0)
    process = workshop.runner().plugin.worker
    assert not process.running
    workshop.post("!word")
    workshop.rounds()
    workshop.clock.pass_seconds(59)
    workshop.round()
    assert process.running
    workshop.clock.pass_seconds(2)
    workshop.round()
    assert not process.running
    message = workshop.post("!again")
    workshop.rounds()
    assert workshop.found(message) == ["!again"]


def test_one_that_used_up_half_of_its_time_is_replaced_between_two_messages(worker):
    text = (
        "import time\ndef enrich(message, config):\n"
        "    until = time.process_time() + 0.6\n"
        "    while time.process_time() < until: pass\n"
        "    return []\n"
    )
    busy = worker(text, cpu_seconds=1, timeout_seconds=30.0)
    for _ in range(2):
        assert bytes(busy.ask(b"{}")) == b"[]"
        busy.rest()
        assert not busy.running


def test_what_it_does_to_its_arguments_and_globals_stays_its_own(worker):
    text = (
        "count = 0\ndef enrich(message, config):\n"
        "    global count; count += 1\n"
        "    message['a'] = config['b'] = 1\n"
        "    return [count, len(message), len(config)]\n"
    )
    one = worker(text)
    assert bytes(one.ask(b'{"x":1}')) == b"[1,2,1]"
    assert bytes(one.ask(b'{"x":1}')) == b"[2,2,1]"


def test_its_version_is_shown(worker):
    one = worker("VERSION = '1.2'\ndef enrich(message, config): return []")
    one.start()
    assert one.version == "1.2"


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
def test_a_fault_is_told_by_class_and_line_and_not_by_text(worker, code, outcome, kind):
    one = worker(f"def enrich(message, config):\n    {code}\n")
    failure = failing(one, b'{"content_raw":"a secret"}')
    assert failure.outcome == outcome
    assert not failure.passing
    assert failure.where.get("error_type") == kind
    assert "secret" not in failure.sentence
    assert "\n" not in failure.sentence


def test_one_that_answers_by_itself_is_not_believed(worker):
    """It can find the line, and then hurts only itself."""
    text = (
        "import os, stat\ndef enrich(message, config):\n"
        "    line = next(n for n in range(3, 64) if stat.S_ISSOCK(os.fstat(n).st_mode))\n"
        "    os.write(line, b'rubbish\\n')\n"
        "    return []\n"
    )
    one = worker(text)
    assert failing(one).outcome == "invalid"
    assert not one.running


def test_a_second_answer_is_called_what_it_is(worker):
    """Not too much output: it wrote a line of its own before the one it was asked for."""
    text = (
        "import os, stat\ndef enrich(message, config):\n"
        "    line = next(n for n in range(3, 64) if stat.S_ISSOCK(os.fstat(n).st_mode))\n"
        "    os.write(line, b'{}\\n{}\\n')\n"
        "    return []\n"
    )
    one = worker(text)
    assert bytes(one.ask(b"{}")) == b"[]"
    failure = failing(one)
    assert failure.outcome == "invalid"
    assert "without being asked" in failure.sentence
    assert not one.running


def test_a_module_that_never_ends_loading_is_given_up(worker):
    one = worker("while True: pass", load_seconds=0.5)
    failure = failing(one)
    assert (failure.outcome, failure.passing) == ("timeout", True)
    assert not one.running
