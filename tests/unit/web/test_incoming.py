"""However a client cuts its bytes, what is cut here and what the library reads is the same."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side, State

from appliance.kernel.errors import Invalid
from appliance.web.incoming import DATA_OPCODES, HELD_BYTES_MAX, Incoming, frame_end
from tests.support.socketclient import BINARY, CLOSE, PING, TEXT, frame

LIMIT = 90_000
payloads = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"x" * size for size in (125, 126, 127, HELD_BYTES_MAX, 65_535, 65_536)]),
)
whole = payloads.map(lambda payload: frame(TEXT, payload))
fragments = st.lists(st.binary(max_size=9), min_size=2, max_size=4).map(
    lambda parts: b"".join(
        frame(TEXT if place == 0 else 0, part, fin=place == len(parts) - 1)
        for place, part in enumerate(parts)
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
said = st.lists(st.one_of(whole, whole, fragments, pings, odd), max_size=6).map(b"".join)


def protocol():
    return Protocol(Side.SERVER, state=State.OPEN, max_size=LIMIT)


def by_the_library(data):
    """Messages, and what it answers."""
    reading, messages, parts = protocol(), [], []
    reading.receive_data(data)
    for one in reading.events_received():
        if isinstance(one, Frame) and one.opcode in DATA_OPCODES:
            parts.append(bytes(one.data))
            if one.fin:
                messages.append(b"".join(parts))
                parts = []
    return messages, b"".join(reading.data_to_send()), reading.close_rcvd, reading.close_sent


@given(data=said, cuts=st.lists(st.integers(0, 1 << 18), max_size=8))
def test_messages_and_answers_are_the_librarys_wherever_the_bytes_are_cut(data, cuts):
    reading = protocol()
    incoming = Incoming(reading)
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    messages = [
        message for start, end in pairwise(places) for message in incoming.take(data[start:end])
    ]
    answer = b"".join(reading.data_to_send())
    assert (messages, answer, reading.close_rcvd, reading.close_sent) == by_the_library(data)
    assert incoming.over == (reading.close_sent is not None)


def test_one_byte_at_a_time_holds_no_more_than_it_may():
    incoming = Incoming(protocol())
    data = frame(TEXT, b"a" * (3 * HELD_BYTES_MAX)) + frame(TEXT, b"b")
    held = 0
    messages = []
    for place in range(len(data)):
        messages += incoming.take(data[place : place + 1])
        held = max(held, len(incoming._held))
    assert messages == [b"a" * (3 * HELD_BYTES_MAX), b"b"]
    assert held <= 14


def test_a_binary_frame_is_refused():
    incoming = Incoming(protocol())
    with pytest.raises(Invalid):
        incoming.take(frame(BINARY, b"\0"))


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
def test_the_end_of_a_frame_is_in_its_head(size):
    data = frame(Opcode.TEXT, b"x" * size)
    assert frame_end(b"??" + data, 2) == len(data) + 2
    assert frame_end(data[:1], 0) is None
