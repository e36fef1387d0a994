"""However a client cuts its bytes, what is cut here and what the library reads is the same."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side, State

from appliance.kernel.clock import SystemClock
from appliance.kernel.errors import Exhausted
from appliance.kernel.token_bucket import TokenBucket
from appliance.web import incoming as module
from appliance.web.incoming import SHORT_FRAGMENT_BYTES, Incoming
from tests.support.socketclient import CLOSE, CONT, PING, TEXT, frame

LIMIT = 90_000
FRAGMENTS_MAX = 50
DATA_OPCODES = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)
payloads = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"x" * size for size in (125, 126, 127, 16_384, 65_535, 65_536)]),
)
whole = payloads.map(lambda payload: frame(TEXT, payload))
fragments = st.lists(st.binary(max_size=9), min_size=2, max_size=4).map(
    lambda parts: b"".join(
        frame(TEXT if offset == 0 else 0, part, fin=offset == len(parts) - 1)
        for offset, part in enumerate(parts)
    )
)
pings = st.binary(max_size=125).map(lambda payload: frame(PING, payload))
odd = st.sampled_from(
    [
        frame(CLOSE, b"\x03\xe8"), frame(CLOSE, b""), frame(CLOSE, b"\x03\xe8bye\xff"),
        frame(CLOSE, b"\x03"), frame(CLOSE, b"\x03\xed"), frame(CLOSE, b"\x0f\xa3why"),
        frame(0, b"of nothing"), frame(0x3, b"reserved"), frame(PING, b"x" * 126),
        frame(TEXT, b"begun", fin=False), b"\x81\x05hello", b"\xc1\x80\0\0\0\0",
        frame(TEXT, b"x" * (LIMIT + 1)), frame(PING, b"cut", fin=False),
    ]
)  # fmt: skip
streams = st.lists(st.one_of(whole, whole, fragments, pings, odd), max_size=6).map(b"".join)


def protocol():
    return Protocol(Side.SERVER, state=State.OPEN, max_size=LIMIT)


def incoming_of(*, burst=1000):
    """An Incoming that allows at most `burst` control frames and short fragments."""
    return Incoming(LIMIT, TokenBucket(1e-9, burst, 0.0), SystemClock())


def by_the_library(data):
    """Messages, the payload of the last ping, and the code with which it ends."""
    reading, messages, parts, ping = protocol(), [], [], None
    reading.receive_data(data)
    for event in reading.events_received():
        if isinstance(event, Frame) and event.opcode in DATA_OPCODES:
            parts.append(bytes(event.data))
            if event.fin:
                messages.append(b"".join(parts))
                parts = []
        elif isinstance(event, Frame) and event.opcode is Opcode.PING:
            ping = bytes(event.data)
    end = reading.close_rcvd or reading.close_sent
    return messages, ping, None if end is None else end.code


@given(data=streams, cuts=st.lists(st.integers(0, 1 << 18), max_size=8))
def test_messages_equal_the_librarys_wherever_the_bytes_are_split(data, cuts):
    incoming = incoming_of()
    offsets = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    messages = [
        message for start, end in pairwise(offsets) for message in incoming.feed(data[start:end])
    ]
    pong = incoming.take_pong()
    ping = None if pong is None else pong[2:]
    closed = None if incoming.closed is None else incoming.closed[0]
    assert (messages, ping, closed) == by_the_library(data)


def test_short_fragments_count_and_long_ones_do_not():
    short, long = b"x" * 10, b"x" * SHORT_FRAGMENT_BYTES
    incoming = incoming_of(burst=3)
    incoming.feed(frame(TEXT, long, fin=False) + frame(CONT, long, fin=False) * 20)
    assert incoming.feed(frame(CONT, b"")) == [long * 21]
    incoming.feed(frame(TEXT, short, fin=False) + frame(CONT, short, fin=False) * 2)
    with pytest.raises(Exhausted):
        incoming.feed(frame(CONT, b"", fin=False))


def test_fragments_are_limited_for_each_message(monkeypatch):
    monkeypatch.setattr(module, "FRAGMENTS_MAX", FRAGMENTS_MAX)
    piece = b"x" * SHORT_FRAGMENT_BYTES
    incoming = incoming_of()
    whole = frame(TEXT, piece, fin=False) + frame(CONT, piece, fin=False) * (FRAGMENTS_MAX - 1)
    for _ in range(3):
        assert incoming.feed(whole + frame(CONT, b"")) == [piece * FRAGMENTS_MAX]
    incoming.feed(whole)
    with pytest.raises(Exhausted):
        incoming.feed(frame(CONT, piece, fin=False))
