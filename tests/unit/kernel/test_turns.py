"""How many pieces are read at once, what callers without a token may read in a second, and whether
sockets are served between pieces that are parsed."""

import gevent
import pytest
from gevent import socket

from appliance.kernel.auth import ANONYMOUS, Principal
from appliance.kernel.clock import SystemClock
from appliance.kernel.turns import (
    ANONYMOUS_BYTES_BURST,
    ANONYMOUS_BYTES_PER_SECOND,
    Turns,
    parse_in_pieces,
)
from tests.support.clock import FakeClock

KNOWN = [Principal(name, name, frozenset()) for name in ("one", "two")]
PIECE = 1024 * 1024


def highest(who, count=20):
    """The highest number of pieces that were read at once by `count` greenlets of each caller."""
    turns, reading, at_once = Turns(FakeClock(), PIECE), 0, 0

    def read(principal):
        nonlocal reading, at_once
        with turns.turn(principal):
            reading += 1
            at_once = max(at_once, reading)
            gevent.sleep(0)
            reading -= 1

    gevent.joinall([gevent.spawn(read, each) for _ in range(count) for each in who], timeout=10)
    return at_once


@pytest.mark.parametrize(("who", "pieces"), [([ANONYMOUS], 1), (KNOWN[:1], 1), (KNOWN, 2)])
def test_each_caller_reads_one_piece_at_a_time_and_all_without_a_token_are_one(who, pieces):
    assert highest(who) == pieces


def test_bytes_of_callers_without_a_token_are_limited_and_those_of_others_are_not():
    clock = FakeClock()
    turns = Turns(clock, PIECE, clock.pass_seconds)

    def seconds(who, pieces):
        began = clock.seconds
        for _ in range(pieces):
            with turns.turn(who) as charge:
                charge(PIECE)
        return clock.seconds - began

    pieces = (ANONYMOUS_BYTES_BURST + 4 * ANONYMOUS_BYTES_PER_SECOND) // PIECE
    assert seconds(KNOWN[0], pieces) == 0
    assert seconds(ANONYMOUS, pieces) == pytest.approx(4)


def test_small_read_is_charged_its_size_and_a_failed_one_nothing():
    clock = FakeClock()
    turns = Turns(clock, PIECE, clock.pass_seconds)
    for _ in range(2 * ANONYMOUS_BYTES_BURST // PIECE):
        with turns.turn(ANONYMOUS) as charge:
            charge(100)
        with pytest.raises(OSError), turns.turn(ANONYMOUS):
            raise OSError
    assert clock.seconds == FakeClock().seconds


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
