"""Ids of recently acked envelopes."""

from appliance.courier.recent_ids import RecentIds
from tests.support.courier import footprint


def test_recent_ids_are_limited_in_number_and_time():
    recent = RecentIds(3, seconds=10)
    for id_ in "abcd":
        recent.add(id_)
    assert "a" not in recent
    assert "d" in recent
    recent.age(1_000)
    recent.add("e")
    assert recent.age(11_000) == 2  # c and d; b was pushed out by e
    assert "d" not in recent
    assert "e" in recent


def test_idle_stream_does_not_accumulate_memory():
    recent = RecentIds(3, seconds=1000)
    recent.add("a")
    recent.age(0)
    before = footprint(recent)
    for second in range(900):
        recent.age(second * 1000.0)
    assert footprint(recent) == before
    assert recent.age(1_000_000.0) == 1
