"""However a client cuts its bytes, what is cut here and what the library reads is the same."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side, State

from appliance.kernel.token_bucket import TokenBucket
from appliance.web.incoming import (
    BUFFERED_BYTES_MAX,
    DATA_OPCODES,
    SHORT_FRAGMENT_BYTES,
    FrameFlood,
    Incoming,
)
from tests.support.socketclient import CLOSE, CONT, PING, TEXT, frame

LIMIT = 90_000
FRAGMENTS_MAX = 50
payloads = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"x" * size for size in (125, 126, 127, BUFFERED_BYTES_MAX, 65_535, 65_536)]),
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
        frame(CLOSE, b"\x03\xe8"), frame(0, b"of nothing"), frame(0x3, b"reserved"),
        frame(TEXT, b"begun", fin=False), b"\x81\x05hello", b"\xc1\x80\0\0\0\0",
        frame(TEXT, b"x" * (LIMIT + 1)), frame(PING, b"cut", fin=False),
    ]
)  # fmt: skip
streams = st.lists(st.one_of(whole, whole, fragments, pings, odd), max_size=6).map(b"".join)


def protocol():
    return Protocol(Side.SERVER, state=State.OPEN, max_size=LIMIT)


def incoming_of(reading=None, *, burst=1000):
    """An Incoming that allows at most `burst` control frames and short fragments."""
    return Incoming(reading or protocol(), TokenBucket(0, burst, 0.0), FRAGMENTS_MAX)


def by_the_library(data):
    """Messages, the payload of the last ping, and what it answers beside pongs."""
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
    answers = [sent for sent in reading.data_to_send() if sent[:1] != b"\x8a"]
    return messages, ping, b"".join(answers), reading.close_rcvd, reading.close_sent


@given(data=streams, cuts=st.lists(st.integers(0, 1 << 18), max_size=8))
def test_messages_equal_the_librarys_wherever_the_bytes_are_split(data, cuts):
    reading = protocol()
    incoming = incoming_of(reading)
    offsets = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    messages = [
        message for start, end in pairwise(offsets) for message in incoming.take(data[start:end])
    ]
    pong = incoming.take_pong()
    ping = None if pong is None else pong[2:]
    answer = b"".join(reading.data_to_send())
    read = (messages, ping, answer, reading.close_rcvd, reading.close_sent)
    assert read == by_the_library(data)
    assert incoming.over == (reading.close_sent is not None)


def test_short_fragments_count_and_long_ones_do_not():
    short, long = b"x" * 10, b"x" * SHORT_FRAGMENT_BYTES
    incoming = incoming_of(burst=3)
    incoming.take(frame(TEXT, long, fin=False) + frame(CONT, long, fin=False) * 20)
    assert incoming.take(frame(CONT, b"")) == [long * 21]
    incoming.take(frame(TEXT, short, fin=False) + frame(CONT, short, fin=False) * 2)
    with pytest.raises(FrameFlood):
        incoming.take(frame(CONT, b"", fin=False))


def test_fragments_are_limited_for_each_message():
    piece = b"x" * SHORT_FRAGMENT_BYTES
    incoming = incoming_of()
    whole = frame(TEXT, piece, fin=False) + frame(CONT, piece, fin=False) * (FRAGMENTS_MAX - 1)
    for _ in range(3):
        assert incoming.take(whole + frame(CONT, b"")) == [piece * FRAGMENTS_MAX]
    incoming.take(whole)
    with pytest.raises(FrameFlood):
        incoming.take(frame(CONT, piece, fin=False))


def test_a_fragment_that_arrives_byte_by_byte_counts_once():
    incoming = incoming_of(burst=1)
    messages = []
    for byte in frame(TEXT, b"x" * 300, fin=False) + frame(CONT, b"y"):
        messages += incoming.take(bytes([byte]))
    assert messages == [b"x" * 300 + b"y"]
