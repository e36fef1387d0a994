"""Changes of workers' states become messages of a topic, each once, whatever ends the server."""

import time
from contextlib import closing

import pytest

from appliance.busfile import workers
from appliance.busfile.file import BusPaths, connect, transaction
from tests.support.servedhub import serve
from tests.support.until import until

SETTINGS = '[bus]\nhub_topic = "team/states"\n'
TOPIC = "/api/v1/messages?topic_id=team/states&limit=100"
STATES = ("ASSIGNED", "WORKING", "FAILED")


def now_ms():
    return int(time.time() * 1000)


def contents(hub):
    messages = hub.http.get(TOPIC).body.get("messages", ())
    return [message["content_raw"] for message in reversed(messages)]


def wait_for_loop(hub):
    ran = b'loop_last_success_timestamp_seconds{loop="bus_topic"}'
    until(lambda: ran in hub.http.get("/metrics").raw, 20, "the loop runs")


def change(connection, task, number):
    """The next state of a task, by another program."""
    with transaction(connection):
        if number == 0:
            workers.create(connection, now_ms(), task, branch=None, actor="eve")
            return f"{task}: ASSIGNED (eve)"
        before, after = STATES[(number - 1) % 3], STATES[number % 3]
        workers.transition(connection, now_ms(), task, before, after, actor="eve")
        return f"{task}: {before} → {after} (eve)"


@pytest.mark.slow
def test_kill_posts_nothing_twice_and_loses_nothing(tmp_path):
    odd = "INSERT INTO messages (id, ts_ms, from_agent, type, payload) VALUES (?, 1, 'x', ?, ?)"
    with (
        closing(connect(BusPaths(tmp_path))) as connection,
        serve(tmp_path, settings=SETTINGS) as hub,
    ):
        wait_for_loop(hub)
        with transaction(connection):
            connection.execute(odd, ("o1", "state_change", "no json"))
            connection.execute(odd, ("o2", "note", '{"to": "y"}'))
        hub.constants = {"appliance.integrations.bus_hub.BusTopicPoster.interval_seconds": 0.05}
        hub.stop()
        expected = []
        for number in range(4):
            hub.start()
            expected.append(change(connection, "t", number))
            if number % 2:
                until(lambda: contents(hub), 30, "something is posted")
            expected += [change(connection, f"t{number}", n) for n in range(3)]
            hub.kill()
            expected.append(change(connection, f"off{number}", 0))
        hub.start()
        until(lambda: contents(hub)[-1:] == expected[-1:], 30, "the last one is posted")
        assert contents(hub) == expected
