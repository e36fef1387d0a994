"""Leases of a stream end as the kernel's rules for leases allow."""

import pytest

from appliance.courier.consumer import Consumer
from appliance.courier.lease import DEAD, DONE, LEASED, READY
from appliance.courier.policy import StreamPolicy
from appliance.courier.stream import Stream
from appliance.courier.timers import Timers
from appliance.kernel.state_machine import IllegalTransition


@pytest.fixture
def stream():
    return Stream("a", StreamPolicy(deliveries_max=2, backoff_seconds=0.0), Timers())


def leased(stream, id_="e1"):
    if stream.find(id_) is None:
        stream.put(id_, b"{}", 0.0)
    (item,) = stream.claim(1, Consumer("c", "c", lambda: None), 0.0, 1000)
    return item


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (lambda stream, item: stream.ack(item, 1.0), DONE),
        (lambda stream, item: stream.release(item, 1.0), READY),
        (lambda stream, item: stream.fail(item, 1.0), READY),
        (lambda stream, item: stream.fail(item, 1.0, delay_ms=5), "delayed"),
        (lambda stream, item: stream.reject(item, 1.0), DEAD),
        (lambda stream, item: stream.on_timer(item, 1.0), READY),
    ],
    ids=["ack", "release", "fail", "fail with delay", "reject", "expiry of the lease"],
)
def test_end_of_a_lease_leads_to_its_state_and_happens_once(stream, end, state):
    item = leased(stream)
    assert item.state == LEASED
    end(stream, item)
    assert (item.state, item.consumer, stream.leased) == (state, None, 0)
    with pytest.raises(IllegalTransition):
        stream.ack(item, 1.0)
