"""Ids rise strictly, whatever the clock does."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.kernel.ids import ALPHABET, ULID_LENGTH, IdFactory, encode_ulid, ulid_value
from tests.support.clock import FakeClock


@given(st.lists(st.integers(-10_000, 10_000), min_size=1, max_size=200))
def test_ids_rise_strictly_while_the_clock_jumps(jumps):
    clock = FakeClock()
    factory = IdFactory(clock)
    ids = []
    for jump in jumps:
        clock.ms += jump
        ids += [factory.new("msg_"), factory.new("msg_")]
    assert ids == sorted(set(ids))


def test_ids_after_a_restart_are_above_ids_from_the_future():
    future = FakeClock(2_000_000_000_000)
    last = IdFactory(future).new("msg_")
    restarted = IdFactory(FakeClock())
    restarted.seed(last)
    assert restarted.new("msg_") > last


@given(st.integers(0, 2**128 - 1))
def test_encoding_keeps_order_and_length(value):
    text = encode_ulid(value)
    assert len(text) == ULID_LENGTH
    assert set(text) <= set(ALPHABET)
    assert ulid_value("msg_" + text) == value
    if value:
        assert encode_ulid(value - 1) < text
