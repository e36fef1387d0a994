"""The built-in for web addresses works unasked, and costs nothing where there are none."""

import gevent
import pytest

from appliance.hub import events
from appliance.hub.plugins import queries, source
from appliance.hub.plugins.builtin import urls
from appliance.hub.plugins.loops import IDLE_SECONDS
from appliance.hub.plugins.settings import PluginSettings, PluginsSettings

OWN = PluginSettings("own", "linkifier", builtin="references")
SECONDS_MAX = 30.0


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (PluginsSettings(), ["urls"]),
        (PluginsSettings(use=(OWN,)), ["urls", "own"]),
        (PluginsSettings(urls=False, use=(OWN,)), ["own"]),
        (PluginsSettings(use=(PluginSettings("a", "extractor", builtin="urls"),)), ["a"]),
        (PluginsSettings(use=(PluginSettings("urls", "extractor", module="x.py"),)), ["urls"]),
        (PluginsSettings(use=(PluginSettings("urls", "extractor", enabled=False),)), ["urls"]),
    ],
)
def test_it_is_there_unless_the_settings_speak_of_it(settings, names):
    assert [one.name for one in settings.all] == names


def attached(workshop):
    return workshop.house.rows("SELECT kind, value_json, source_message_id FROM topic_attachments")


def test_no_process_is_started_for_messages_without_an_address(workshop):
    workshop.use(urls=True)
    for text in ("hello", "http", "a: //b"):
        workshop.post(text)
    workshop.rounds()
    runner = workshop.runner("urls")
    assert (runner.lag, runner.pending, runner.plugin.done) == (0, 0, 0)
    assert not runner.plugin.worker.running
    assert attached(workshop) == []


def test_an_address_becomes_an_attachment_also_by_an_edit(workshop):
    workshop.use(urls=True, debounce_seconds=0.0)
    message = workshop.post("see https://example.com/a, please")
    other = workshop.post("nothing yet")
    workshop.edit(other, "but now http://example.com/b")
    workshop.rounds()
    assert attached(workshop) == [
        ("url", '{"url":"https://example.com/a"}', message),
        ("url", '{"url":"http://example.com/b"}', other),
    ]
    ((data,), *_) = workshop.house.rows(
        "SELECT data_json FROM events WHERE name = 'topic.attachment_added'"
    )
    assert data.endswith('"principal":"plugin:urls"}')


def test_a_slash_that_another_program_escaped_is_seen(workshop):
    workshop.use(urls=True)
    workshop.store.write(_of_another_program, workshop.channel_id)
    (entry,) = workshop.store.read(queries.log_piece, 0, 2**62, 1000, "://")[-1:]
    assert (entry[1], bool(entry[4])) == ("message.created", True)


def _of_another_program(tx, channel_id):
    data = rb'{"message":{"content_raw":"https:\/\/example.com"}}'
    events.append(tx, "message.created", ("message", "m"), data, channel_id=channel_id)


@pytest.mark.parametrize("text", ["http:/x", "https:example.com", "www.example.com", "mailto:a@b"])
def test_without_the_needed_text_it_finds_nothing(text):
    assert source.NEEDED["urls"] not in text
    assert urls.extract({"content_raw": text}, {}) == []


def test_an_idle_runner_sleeps_and_a_message_wakes_it(workshop):
    workshop.use(urls=True, poll_seconds=0.01, cursor_seconds=0.0)
    runner = workshop.runner("urls")
    runner.start()
    with gevent.Timeout(SECONDS_MAX):
        while runner.interval_seconds != IDLE_SECONDS:
            gevent.sleep(0.01)
        workshop.post("https://example.com/woken")
        while not attached(workshop):
            gevent.sleep(0.01)
        while runner.interval_seconds != IDLE_SECONDS:
            gevent.sleep(0.01)
    runner.stop()
    assert workshop.hub.feed._subscriptions == set()
