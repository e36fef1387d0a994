"""Posted frames are sent at once if possible, otherwise in order, within limits."""

import gevent
import pytest
from gevent import socket as gevent_socket

from appliance.kernel.clock import SystemClock
from appliance.kernel.wakeup import Wakeup
from appliance.web import socket as sockets
from appliance.web.frame import text_frame
from appliance.web.socket import (
    GOING_AWAY,
    Socket,
)
from tests.support.socketclient import TEXT, frame
from tests.support.until import gevent_until

BIG = 300_000


class Served:
    """A socket served by `run`, whose other end a test holds."""

    def __init__(self, on_messages=None):
        raw, self.peer = gevent_socket.socketpair()
        self.socket = Socket(raw, SystemClock())
        self.signal = Wakeup()
        self.woken = 0
        self.running = gevent.spawn(
            self.socket.run, on_messages or self._ignore, self._wake, self._body
        )
        gevent.sleep(0)

    def _ignore(self, messages):
        self.socket.post(b"".join(text_frame(message) for message in messages))

    def _wake(self):
        self.woken += 1
        self.signal.set()

    def _body(self):
        while True:
            self.signal.clear()
            self.socket.flush()
            self.signal.wait(5)

    def read(self, size):
        data = b""
        with gevent.Timeout(10):
            while len(data) < size:
                piece = self.peer.recv(size - len(data))
                assert piece, "the connection has ended"
                data += piece
        return data


@pytest.fixture
def served():
    served = Served()
    yield served
    served.peer.close()
    served.running.join(10)


def test_partial_write_continues_where_it_stopped(served):
    pieces = [bytes([65 + number]) * BIG for number in range(10)]
    for piece in pieces:
        served.socket.post(piece)
    assert served.woken > 0
    gevent.sleep(0.01)  # the writing greenlet waits in the middle of a frame now
    begun = served.peer._sock.recv(1 << 20)  # room, and nobody else has had a turn yet
    served.socket.post(b"end")
    assert begun + served.read(10 * BIG + 3 - len(begun)) == b"".join(pieces) + b"end"
    assert served.socket.wait_for_capacity(0)


def test_nothing_is_written_into_a_frame_that_stalled(monkeypatch):
    monkeypatch.setattr(sockets, "STALL_SECONDS_MAX", 0.2)
    served = Served()
    served.socket.post(b"x" * 10_000_000)
    gevent_until(lambda: served.socket._closing is not None)
    served.socket.post(b"late")
    received = b""
    while piece := served.peer.recv(1 << 20):
        received += piece
    assert b"late" not in received
    assert received[:1000] == b"x" * 1000
    served.peer.close()
    assert served.running.get(timeout=10) == 1008


def test_socket_without_memory_is_closed_with_1001():
    def fail(_messages):
        raise MemoryError

    served = Served(on_messages=fail)
    served.peer.sendall(frame(TEXT, b"x"))
    assert b"the operating system gives" in served.read(40)
    served.peer.close()
    assert served.running.get(timeout=10) == GOING_AWAY
