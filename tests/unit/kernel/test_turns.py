"""Whether sockets are served between pieces that are parsed."""

import gevent
import pytest
from gevent import socket

from appliance.kernel.clock import SystemClock
from appliance.kernel.turns import parse_in_pieces


@pytest.mark.parametrize("fails", [False, True])
def test_sockets_are_served_after_each_piece_whoever_else_parses(monkeypatch, fails):
    monkeypatch.setattr("appliance.kernel.turns.PIECE_SECONDS", 0.0)
    near, far = socket.socketpair()
    parsed, sent_at = [], 20

    def parse(item):
        parsed.append(item)
        if len(parsed) == sent_at:
            near.send(b"x")
        if fails and item:
            raise ValueError

    with near, far:
        reader = gevent.spawn(lambda: far.recv(1) and len(parsed))
        parsers = [
            gevent.spawn(parse_in_pieces, parse, [0] + [1] * 20, SystemClock()) for _ in range(20)
        ]
        assert reader.get(timeout=10) <= sent_at + 3
        gevent.joinall(parsers, timeout=10)
