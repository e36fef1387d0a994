"""Clients that request a lot and read nothing: their queue is limited, others are served."""

import re
import socket
from contextlib import ExitStack

import pytest

from tests.support.servedhub import serve
from tests.support.until import until

BUDGET = 3_000_000
WRITE_MAX = 5_000_000  # the largest single answer of this test
CONSTANTS = {
    "appliance.app.UNSENT_BYTES_MAX": BUDGET,
    "appliance.kernel.reader.PAGE_BYTES_MAX": WRITE_MAX,
    "appliance.web.connections.SEND_SECONDS_MAX": 300.0,
    "appliance.web.socket.STALL_SECONDS_MAX": 300.0,
}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("unsent"), constants=CONSTANTS) as hub:
        hub.topic_id = hub.channel_with_topic("large")[1]
        for _ in range(6):
            hub.send_many(hub.topic_id, ["x" * 64_000] * 10)
        yield hub


def metric(hub, name):
    text = hub.http.get("/metrics").raw.decode()
    results = re.search(rf"^agentlip_{name} (\S+)$", text, re.MULTILINE)
    return float(results[1]) if results else 0.0


def unread(hub, stack, path, times):
    """A connection that asks `times` and reads nothing."""
    connection = stack.enter_context(socket.socket())
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", hub.port))
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {hub.token}\r\n\r\n"
    connection.sendall(head.encode() * times)
    return connection


def test_unread_pages_are_limited_and_other_clients_are_served(hub):
    path = f"/api/v1/messages?topic_id={hub.topic_id}&limit=1000"
    assert hub.http.get(path).status == 200
    with ExitStack() as stack:
        for _ in range(20):
            unread(hub, stack, path, 10)
            assert metric(hub, "unsent_bytes") <= BUDGET + WRITE_MAX
            assert hub.http.get("/health").status == 200
            assert hub.http.get("/api/v1/channels").status == 200

        until(
            lambda: metric(hub, 'unsent_shed_total{kind="http"}'),
            30,
            "a client that reads nothing is cut off",
        )
        assert hub.http.get(path).status == 200
    until(lambda: metric(hub, "unsent_bytes") == 0, 30, "nothing waits any more")
