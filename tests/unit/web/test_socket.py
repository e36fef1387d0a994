"""What is posted goes out at once if it can, and else in order, whole, and not without limit."""

import gevent
import pytest
from gevent import socket as gevent_socket

from appliance.kernel.clock import SystemClock
from appliance.kernel.signal import Signal
from appliance.web.frame import text_frame
from appliance.web.socket import Socket, SocketSettings

BIG = 300_000


class Served:
    """A socket served by `run`, whose other end a test holds."""

    def __init__(self, stall_seconds=5.0):
        raw, self.peer = gevent_socket.socketpair()
        settings = SocketSettings(stall_seconds_max=stall_seconds, close_seconds_max=0.2)
        self.socket = Socket(raw, settings, SystemClock())
        self.signal = Signal()
        self.woken = 0
        self.running = gevent.spawn(self.socket.run, self._heard, self._wake, self._body)
        gevent.sleep(0)

    def _heard(self, messages):
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
        found = b""
        with gevent.Timeout(10):
            while len(found) < size:
                found += self.peer.recv(size - len(found))
        return found


@pytest.fixture
def served():
    one = Served()
    yield one
    one.peer.close()
    one.running.join(10)


def test_what_the_client_takes_at_once_wakes_nobody(served):
    for number in range(100):
        served.socket.post(b"%03d" % number)
    assert served.woken == 0
    assert served.read(300) == b"".join(b"%03d" % number for number in range(100))


def test_what_is_cut_goes_on_where_it_was_cut(served):
    pieces = [bytes([65 + number]) * BIG for number in range(10)]
    for piece in pieces:
        served.socket.post(piece)
    assert served.woken > 0
    gevent.sleep(0.01)  # the writing greenlet waits in the middle of a frame now
    begun = served.peer._sock.recv(1 << 20)  # room, and nobody else has had a turn yet
    served.socket.post(b"end")
    assert begun + served.read(10 * BIG + 3 - len(begun)) == b"".join(pieces) + b"end"
    assert served.socket.has_room(0)


def test_nothing_is_written_into_a_frame_that_stalled():
    served = Served(stall_seconds=0.2)
    served.socket.post(b"x" * 10_000_000)
    with gevent.Timeout(10):
        while served.socket._closing is None:
            gevent.sleep(0.01)
    served.socket.post(b"late")
    received = b""
    while piece := served.peer.recv(1 << 20):
        received += piece
    assert b"late" not in received
    assert received[:1000] == b"x" * 1000
    assert served.running.get(timeout=10) == 1008
