"""Clients that send frames without messages: they are closed with 1008, others are served."""

import contextlib
import threading

import pytest

from tests.support.socketclient import CONT, PING, PONG, TEXT, SocketClient, frame

FLOODS = {
    "pings": frame(PING, b""),
    "long-pings": frame(PING, b"x" * 125),
    "pongs": frame(PONG, b""),
    "fragments": frame(CONT, b"", fin=False),
}
PATHS = ("/broker/v1/link", "/ws", "/v1/publish", "/v1/subscribe", "/v1/live")
QUERIES = {"/v1/subscribe": "?stream=flooded/a", "/v1/live": "?view=latestPerAgent"}
REASON = "more than 20 control frames and short fragments a second"
FLOODERS = 8
FLOOD_BYTES_MAX = 30_000_000


def opened(hub, path, kind="pings"):
    token = None if path == "/broker/v1/link" else hub.token
    begin = frame(TEXT, b"", fin=False) if kind == "fragments" else b""
    return SocketClient(
        hub.port, token, path=path, query=QUERIES.get(path, ""), first=begin, receive_buffer=4096
    )


def ended(client):
    """Code and reason of the server's close frame."""
    closed = client.closed()
    return closed.code, closed.reason


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", FLOODS)
def test_frames_without_a_message_are_limited_on_every_socket(hub, path, kind):
    with opened(hub, path, kind) as client:
        with contextlib.suppress(ConnectionError):
            client.sock.sendall(FLOODS[kind] * 300)
        assert ended(client) == (1008, REASON)


@pytest.mark.parametrize("kind", ["pings", "fragments"])
def test_eight_flooding_clients_are_closed_while_others_are_served(hub, kind):
    codes = []

    def flood():
        with opened(hub, "/broker/v1/link", kind) as client:
            with contextlib.suppress(OSError):
                for _ in range(FLOOD_BYTES_MAX // 60_000):
                    client.sock.sendall(FLOODS[kind] * (60_000 // len(FLOODS[kind])))
            codes.append(ended(client))

    threads = [threading.Thread(target=flood) for _ in range(FLOODERS)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert hub.http.get("/health").status == 200
    assert codes == [(1008, REASON)] * FLOODERS


def test_usual_pings_are_not_a_flood(hub):
    with opened(hub, "/ws") as client:
        client.hello(hub.head, subscriptions={})
        for number in range(90):
            client.sock.sendall(frame(PING, b"%d" % number))
        client.send("not a request")
        assert client.recv()["type"] == "error"
        assert client.pongs[-1] == b"89"


def test_before_hello_a_link_has_tighter_limits(hub):
    with opened(hub, "/broker/v1/link") as client:
        client.sock.sendall(frame(PING, b"") * 20)
        assert ended(client) == (1008, REASON)
    with opened(hub, "/broker/v1/link") as client:
        client.sock.sendall(frame(TEXT, b'{"type":"hello","mesh":"' + b"x" * 20_000 + b'"}'))
        assert client.close_code() == 1009
