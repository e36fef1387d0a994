"""Envelopes that fail again and again in a stream that declares nothing."""

import pytest
from prometheus_client import generate_latest

from appliance.courier import metrics
from appliance.courier.policy import DELIVERIES_MAX
from tests.support.courier import ANYBODY, CourierFixture

STREAM = "work/a"
ERROR = "ValueError: no such customer"
BACKOFF_MS = [1000, 2000, 4000, 8000, 16_000, 32_000] + 18 * [60_000]


def consumer_of(courier, **more):
    consumer = courier.service.make_consumer("c", lambda: None, more.get("lease_ms"))
    courier.service.subscribe(ANYBODY, consumer, STREAM)
    courier.service.grant(consumer, 100)
    return consumer


def test_failing_envelope_waits_and_becomes_a_dead_letter_with_its_error():
    courier = CourierFixture()
    consumer = consumer_of(courier)
    courier.put(STREAM, "a")
    for wait_ms in BACKOFF_MS:
        assert courier.service.nack(consumer, ["a"], "fail", None, ERROR) == []
        courier.pass_ms(wait_ms - 1)
        assert not consumer.inflight
        courier.pass_ms(2)
        assert "a" in consumer.inflight
    courier.service.nack(consumer, ["a"], "fail", None, ERROR)
    dead = courier.service.queue.streams[STREAM].dead["a"]
    assert (dead.attempts, dead.reason, dead.error) == (DELIVERIES_MAX, "max_deliveries", ERROR)
    row = 'agentlip_courier_envelopes{pattern="other",state="dead"} 1.0'
    assert row in generate_latest(metrics.COURIER_REGISTRY).decode()


@pytest.mark.parametrize("end", ["nack", "expire"])
def test_nack_and_expired_lease_redeliver_up_to_limit(end):
    courier = CourierFixture()
    consumer = consumer_of(courier, lease_ms=1000)
    courier.put(STREAM, "a")
    for attempt in range(1, DELIVERIES_MAX + 1):
        assert consumer.inflight["a"].attempts == attempt
        if end == "nack":
            courier.service.nack(consumer, ["a"], None)
        else:
            courier.pass_ms(1000)
    assert not consumer.inflight
    assert list(courier.service.queue.streams[STREAM].dead) == ["a"]


@pytest.mark.parametrize("declared", [{"deliveries_max": 5}, {"retry": {"initial_seconds": 1.0}}])
def test_bare_nack_waits_in_a_stream_that_declares_limits(declared):
    courier = CourierFixture(**declared)
    consumer = consumer_of(courier)
    courier.put(STREAM, "a")
    courier.service.nack(consumer, ["a"], None)
    assert not consumer.inflight
    courier.pass_ms(2000)
    assert "a" in consumer.inflight


def test_no_limit_still_waits_between_failures():
    courier = CourierFixture(deliveries_max=0)
    consumer = consumer_of(courier)
    courier.put(STREAM, "a")
    for _ in range(DELIVERIES_MAX + 5):
        courier.service.nack(consumer, ["a"], "fail", None, ERROR)
        assert not consumer.inflight
        courier.pass_ms(60_001)
        assert "a" in consumer.inflight
