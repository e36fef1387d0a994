"""How it ends: SIGTERM says 1001 and leaves quickly, whoever is listening, and loses nothing."""

import json
import signal
import threading
import time

import pytest

from tests.support.servedhub import ServedHub
from tests.support.socketclient import SocketClient
from tests.support.until import until

pytestmark = pytest.mark.slow


@pytest.fixture
def hub(tmp_path):
    with ServedHub(tmp_path, "--no-limits").running(ending=signal.SIGKILL) as hub:
        yield hub


def waiting(hub, what):
    text = hub.http.get("/metrics").raw.decode()
    return f"agentlip_{what}" in text


def test_sigterm_ends_all_kinds_of_listeners_and_exits_with_zero(hub):
    topic_id = hub.channel_with_topic("end")[1]
    sockets = [SocketClient(hub.port, hub.token) for _ in range(20)]
    for client in sockets[:15]:
        client.hello(hub.head)  # five have not said hello yet
    streams = [hub.connect() for _ in range(5)]
    for client in streams:
        client.connection.request("GET", "/api/v1/events/stream?after=0")
        client.connection.sock.settimeout(15)
    replies = [client.connection.getresponse() for client in streams]
    polls, answers = [hub.connect() for _ in range(5)], []

    def poll(client):
        answers.append(client.get(f"/api/v1/events?after={hub.head}&wait=30"))

    threads = [threading.Thread(target=poll, args=(client,), daemon=True) for client in polls]
    for thread in threads:
        thread.start()
    # Two more than listeners: the runner of the plugin for addresses, and the bounds.
    until(lambda: waiting(hub, "feed_subscriptions 32.0"), 10, "everybody listens")
    hub.send(topic_id)  # wakes the polls: they answer with it
    for thread in threads:
        thread.join(10)
    threads = [threading.Thread(target=poll, args=(client,), daemon=True) for client in polls]
    for thread in threads:
        thread.start()
    until(lambda: waiting(hub, "feed_subscriptions 32.0"), 10, "the polls wait again")
    codes = []
    readers = [
        threading.Thread(target=lambda c=client: codes.append(c.close_code()), daemon=True)
        for client in sockets
    ]
    for reader in readers:
        reader.start()
    started = time.monotonic()
    assert hub.stop() == 0
    assert time.monotonic() - started < 20  # the polls would wait 30
    for reader in readers:
        reader.join(10)
    assert codes == [1001] * 20
    for thread in threads:
        thread.join(10)
    assert len(answers) == 10
    assert [len(answer.body["events"]) for answer in answers] == [1] * 5 + [0] * 5
    for reply in replies:
        assert b"message.created" in reply.read(), "the stream ends as a stream does"
    assert not hub.datadir.server_file.exists()
    assert not hub.datadir.lock_file.exists()


def test_second_hub_in_a_workspace_is_refused_with_the_pid(hub, tmp_path):
    second = ServedHub(tmp_path)
    with pytest.raises(AssertionError):
        second.start()
    assert second.process.wait(10) == 2
    last = [json.loads(line) for line in hub.log_text.splitlines() if line.startswith("{")][-1]
    assert last["pid"] == hub.pid
    assert hub.http.get("/health").status == 200
