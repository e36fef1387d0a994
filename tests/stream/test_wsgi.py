"""Which clients may open a socket: tokens in three ways, hosts, origins, methods, limits."""

import json

import pytest

from tests.support.servedhub import serve
from tests.support.socketclient import Refused, SocketClient


def test_a_token_may_come_in_the_header_the_query_or_a_subprotocol(hub):
    offered = f"agentlip.token.{hub.token}, agentlip.v1"
    for more in (
        {"token": hub.token},
        {"token": None, "query": f"?token={hub.token}"},
        {"token": None, "headers": [("Sec-WebSocket-Protocol", offered)]},
    ):
        with SocketClient(hub.port, **more) as client:
            assert client.hello(hub.head)["type"] == "hello_ok"


@pytest.mark.parametrize(
    ("offered", "answered"),
    [
        ("agentlip.token.{token}, agentlip.v1", "agentlip.v1"),
        ("agentlip.v1,agentlip.token.{token}", "agentlip.v1"),
        ("agentlip.token.{token}", None),
    ],
)
def test_accepted_subprotocol_is_never_the_token(hub, offered, answered):
    headers = [("Sec-WebSocket-Protocol", offered.format(token=hub.token))]
    with SocketClient(hub.port, None, headers=headers) as client:
        codes = [
            line.partition(":")[2].strip()
            for line in client.head.split("\r\n")
            if line.lower().startswith("sec-websocket-protocol:")
        ]
        assert codes == ([answered] if answered else [])
        assert hub.token not in client.head


@pytest.mark.parametrize(
    "more",
    [
        {"token": None},
        {"token": "0" * 64},
        {"token": ""},
        {"token": None, "query": "?token=wrong"},
        {"token": None, "query": "?token="},
        {"token": None, "headers": [("Sec-WebSocket-Protocol", "agentlip.token.wrong, a")]},
        {"token": None, "headers": [("Authorization", "Basic YTpi")]},
        {"token": None, "headers": [("Authorization", "Bearer \u00ff\u00fe")]},
    ],
)
def test_a_bad_token_is_accepted_and_closed_with_4401(hub, more):
    with SocketClient(hub.port, **more) as client:
        assert client.close_code() == 4401


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ([("Host", "evil.example")], 421, "HOST_REFUSED"),
        ([("Origin", "http://evil.example")], 403, "ORIGIN_REFUSED"),
        ([("Origin", "null")], 403, "ORIGIN_REFUSED"),
        ([("Origin", "http://127.0.0.1:1")], 403, "ORIGIN_REFUSED"),
        ([("Sec-WebSocket-Version", "8")], 400, "INVALID_INPUT"),
        ([("Sec-WebSocket-Key", "")], 400, "INVALID_INPUT"),
        ([("Sec-WebSocket-Key", "short")], 400, "INVALID_INPUT"),
        ([("Connection", "keep-alive")], 400, "INVALID_INPUT"),
    ],
)
def test_other_upgrades_are_refused_before_they_happen(hub, headers, status, code):
    with pytest.raises(Refused) as refused:
        SocketClient(hub.port, hub.token, headers=headers)
    body = json.loads(refused.value.body)
    assert (refused.value.status, body["code"]) == (status, code)
    assert body["request_id"] in refused.value.head


def test_own_origin_may_connect(hub):
    origin = ("Origin", f"http://127.0.0.1:{hub.port}")
    with SocketClient(hub.port, hub.token, headers=[origin]) as client:
        assert client.hello(hub.head)["type"] == "hello_ok"


# -- limits, lowered ------------------------------------------------------------------------

SETTINGS = """
[socket]
connections_max = 5
"""
CONSTANTS = {
    "appliance.web.socket.PING_SECONDS": 0.4,
    "appliance.web.socket.IDLE_SECONDS_MAX": 1.2,
    "appliance.web.socket.Socket.wait_seconds": 0.1,
    "appliance.hub.stream.HELLO_SECONDS_MAX": 0.6,
}


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("strict"), settings=SETTINGS, constants=CONSTANTS) as hub:
        yield hub


def test_socket_beyond_the_limit_is_refused_until_one_closes(strict):
    clients = [SocketClient(strict.port, strict.token) for _ in range(5)]
    for client in clients:
        client.hello(strict.head)
    with pytest.raises(Refused) as refused:
        SocketClient(strict.port, strict.token)
    assert refused.value.status == 503
    assert "retry-after:" in refused.value.head.lower()
    assert json.loads(refused.value.body)["details"] == {"limit": 5}
    clients[0].goodbye()
    with SocketClient(strict.port, strict.token) as second:
        assert second.hello(strict.head)["type"] == "hello_ok"
    for client in clients:
        client.close()


def test_socket_without_hello_is_closed(strict):
    with SocketClient(strict.port, strict.token) as client:
        assert client.close_code() == 1008


def test_client_that_answers_no_ping_is_closed(strict):
    with SocketClient(strict.port, strict.token) as client:
        client.hello(strict.head)
        opcodes = []
        while not opcodes or opcodes[-1] != 0x8:
            opcode, payload = client.frame()
            opcodes.append(opcode)
        assert 0x9 in opcodes
        assert int.from_bytes(payload[:2], "big") == 1011
