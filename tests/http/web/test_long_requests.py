"""Streams, long polls and sockets: callers without a token share one quota of them, and a client
that leaves frees its place although nothing is sent to it."""

import json
import socket

import pytest

from tests.support.courier import envelope
from tests.support.http_worker import reply_of
from tests.support.servedhub import serve
from tests.support.until import until

QUOTA = 4
SETTINGS = """
[socket]
connections_max = 2
[[courier.streams]]
pattern = "full"
depth_max = 1
overflow_policy = "block"
[plugins]
urls = false
"""
CONSTANTS = {
    "appliance.web.connections.ANONYMOUS_MAX": QUOTA,
    "appliance.web.worker.SWEEP_SECONDS": 0.05,
    "appliance.web.sse_stream.HEARTBEAT_SECONDS": 3600,  # nothing is sent on a stream
    "appliance.hub.service.WAITING_MAX": 2,
    "appliance.courier.service.WAITING_MAX": 2,
    "appliance.courier.enqueue.WAITING_MAX": 2,
    "appliance.courier.enqueue.BLOCK_MS": 60_000,
}
UPGRADE = (
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
FULL = {"to": "full", "envelope": envelope("second")}
LONG = {
    "stream": ("GET", "/api/v1/events/stream", None, ""),
    "poll": ("GET", "/api/v1/events?name=plugin.none&wait=60", None, ""),
    "live view": ("GET", "/v1/live", None, ""),
    "receive": ("POST", "/v1/receive", {"stream": "agents/x", "wait": 60}, ""),
    "blocked producer": ("POST", "/v1/enqueue", FULL, ""),
    "consumer": ("GET", "/v1/subscribe?stream=agents/y", None, UPGRADE),
    "producer": ("GET", "/v1/publish", None, UPGRADE),
}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("hub"), settings=SETTINGS, constants=CONSTANTS) as hub:
        first = {"to": "full", "envelope": envelope("first")}
        assert hub.http.post("/v1/enqueue", first).status == 200
        yield hub


class Long:
    """A request that lasts, over a raw connection."""

    def __init__(self, hub, kind, token=None):
        method, path, content, headers = LONG[kind]
        body = b"" if content is None else json.dumps(content).encode()
        if body:
            headers += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        if token:
            headers += f"Authorization: Bearer {token}\r\n"
        self.sock = socket.create_connection(("127.0.0.1", hub.port), timeout=30)
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"
        self.sock.sendall(head.encode() + body)

    def refusal(self):
        """Status and code of the response."""
        status, _, body = reply_of(self.sock.makefile("rb"))
        return status, json.loads(body)["code"]

    def close(self):
        self.sock.close()


def in_work(hub):
    """Requests in work at the last sweep; None before the first one."""
    for line in hub.http.get("/metrics").raw.decode().splitlines():
        if 'http_connections{state="work"}' in line:
            return float(line.split()[-1])
    return None


def idle(hub):
    until(lambda: in_work(hub) == 0, what="nobody waits")


@pytest.mark.parametrize("kind", LONG)
def test_callers_without_token_share_one_separate_quota(hub, kind):
    idle(hub)
    taken = [Long(hub, each) for each in ("stream", "poll", "receive", "consumer")]
    until(lambda: in_work(hub) == QUOTA, what="the quota is used up")
    refused = Long(hub, kind)
    assert refused.refusal() == (503, "TOO_MANY_ANONYMOUS")
    known = Long(hub, kind, hub.token)
    until(lambda: in_work(hub) == QUOTA + 1, what="a caller with a token has a place")
    for each in (refused, known, *taken):
        each.close()


@pytest.mark.parametrize("kind", LONG)
def test_client_that_leaves_frees_its_place_although_nothing_is_sent(hub, kind):
    idle(hub)
    for _ in range(2):  # the limits are two, and four without a token
        known = [Long(hub, kind, hub.token) for _ in range(2)]
        anonymous = [Long(hub, kind) for _ in range(QUOTA)]
        until(lambda: in_work(hub) == QUOTA + 2, what="all wait")
        for each in (*known, *anonymous):
            each.close()
        idle(hub)
