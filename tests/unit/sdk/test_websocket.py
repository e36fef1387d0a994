"""A server that floods its clients is left."""

import threading
from contextlib import contextmanager, suppress

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.sync.server import serve

from appliance.sdk.discovery import Endpoint
from appliance.sdk.websocket import (
    CONTROL_FRAMES_BURST,
    SocketBroken,
    WebSocket,
)

MANY = int(CONTROL_FRAMES_BURST) * 20


def raw(opcode, payload=b"", *, fin=True):
    return Frame(opcode, payload, fin).serialize(mask=False)


@contextmanager
def linked(data, **more):
    """A WebSocket to a server that sends `data` as it is, and reads."""

    def play(connection):
        with suppress(ConnectionClosed, OSError):
            connection.socket.sendall(data)
            for _ in connection:
                pass

    with serve(play, "127.0.0.1", 0, compression=None, ping_interval=None) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            port = server.socket.getsockname()[1]
            link = WebSocket(Endpoint("127.0.0.1", port), "/", **more)
            try:
                yield link
            finally:
                link.close()
        finally:
            server.shutdown()
            thread.join()


def received(link):
    messages = []
    while b"end" not in messages:
        messages += link.receive(10)
    return messages


@pytest.mark.parametrize(
    "flood",
    [
        raw(Opcode.PING) * MANY + raw(Opcode.TEXT, b"end"),
        raw(Opcode.PONG, b"x" * 125) * MANY + raw(Opcode.TEXT, b"end"),
        raw(Opcode.TEXT, b"", fin=False)
        + raw(Opcode.CONT, b"", fin=False) * MANY
        + raw(Opcode.CONT, b"end"),
    ],
    ids=["pings", "pongs", "fragments"],
)
def test_a_server_that_floods_is_left(flood):
    with pytest.raises(SocketBroken), linked(flood) as link:
        received(link)
