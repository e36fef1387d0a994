"""Idle consumers take no places from producers, and one token can't take all places."""

import json
import socket
from contextlib import ExitStack

import pytest

from appliance.web.connections import TOKEN_SHARE
from appliance.web.settings import HttpSettings
from tests.support.courier import enqueue, envelope, opened, receive_frame, send, stats
from tests.support.hubprocess import served
from tests.support.until import until

pytestmark = pytest.mark.slow

STREAM = "tests/idle"
UPGRADE = (
    "GET /v1/subscribe?stream={stream}&credit=1 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    "Upgrade: websocket\r\n"
    "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    "Authorization: Bearer {token}\r\n\r\n"
)


def subscribe(hub, stack, token=None):
    """A socket, and the head and body of the response."""
    port = int(hub.url.rpartition(":")[2])
    sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), 30))
    sock.sendall(UPGRADE.format(stream=STREAM, token=token or hub.token).encode())
    return sock.recv(65536)


def refusal(response):
    assert response.startswith(b"HTTP/1.1 503"), response
    assert b"retry-after:" in response.lower()
    return json.loads(response.partition(b"\r\n\r\n")[2])


def test_two_thousand_idle_workers_of_one_token_leave_places_for_everybody(tmp_path):
    token_max = int(HttpSettings().consumers_max * TOKEN_SHARE)
    assert token_max == 2000
    with served(tmp_path, "--no-limits") as hub, ExitStack() as stack:
        body = {"name": "jo", "scopes": [f"streams:{STREAM}:subscribe"]}
        other = hub.request("POST", "/api/v1/tokens", body)["secret"]
        for _ in range(token_max):
            assert subscribe(hub, stack).startswith(b"HTTP/1.1 101")
        refused = refusal(subscribe(hub, stack))
        assert (refused["code"], refused["details"]) == (
            "TOO_MANY_CONSUMERS",
            {"limit": token_max, "scope": "token"},
        )
        assert subscribe(hub, stack, other).startswith(b"HTTP/1.1 101")
        for _ in range(99):  # 100 may be open
            publisher = stack.enter_context(opened(hub, "/v1/publish", hub.token))
        send(publisher, seq=1, to="tests/other", envelope=envelope("b"))
        assert receive_frame(publisher) == {"accepted": 1}
        enqueue(hub, STREAM, "a")
        assert stats(hub, STREAM)["inflight"] == 1


def test_places_return_when_consumers_leave(tmp_path):
    (tmp_path / "agentlip.toml").write_text("[http]\nconsumers_max = 5\nconnections_max = 8\n")
    with served(tmp_path, "--no-limits") as hub:
        body = {"name": "jo", "scopes": [f"streams:{STREAM}:subscribe"]}
        other = hub.request("POST", "/api/v1/tokens", body)["secret"]
        with ExitStack() as stack:
            for token in (None, None, None, None, other):
                assert subscribe(hub, stack, token).startswith(b"HTTP/1.1 101")
            assert refusal(subscribe(hub, stack))["details"] == {"limit": 5, "scope": "all"}
            for _ in range(5):  # connections_max has room for them
                stack.enter_context(opened(hub, "/v1/publish", hub.token))
        until(lambda: stats(hub, STREAM)["subscribers"] == 0, 20, "all have left")
        with ExitStack() as stack:
            assert subscribe(hub, stack).startswith(b"HTTP/1.1 101")
