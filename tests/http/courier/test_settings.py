"""Which settings apply to a stream."""

import pytest

from tests.support.courier import INBOX, CourierFixture
from tests.support.courier_http import enqueue


@pytest.mark.parametrize("step", [1, -1])
def test_most_specific_pattern_applies_to_a_stream(step):
    rows = [{"pattern": "agents/*", "depth_max": 1}, {"pattern": INBOX, "depth_max": 3}]
    courier = CourierFixture(streams=rows[::step])
    client = courier.client()
    for id_ in "abc":
        enqueue(client, id_)
    enqueue(client, "a", to="agents/Bo/inbox")
    enqueue(client, "b", to="agents/Bo/inbox", status=429)


def test_undeclared_stream_is_404_with_declared_only():
    courier = CourierFixture(declared_only=True, streams=[{"pattern": "agents/*"}])
    enqueue(courier.client(), "a")
    assert enqueue(courier.client(), "a", to="other", status=404)["code"] == "UNKNOWN_STREAM"
