"""Ids of recently acked envelopes."""

from appliance.courier.recent_ids import RecentIds
from tests.support.courier import footprint


def test_idle_stream_does_not_accumulate_memory():
    recent = RecentIds(3, seconds=1000)
    recent.add("a")
    recent.age(0)
    before = footprint(recent)
    for second in range(900):
        recent.age(second * 1000.0)
    assert footprint(recent) == before
    assert recent.age(1_000_000.0) == 1
