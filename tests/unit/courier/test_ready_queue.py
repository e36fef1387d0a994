"""Priorities and partition keys: the order in which envelopes are delivered."""

from appliance.courier.consumer import Consumer
from appliance.courier.fair_dispatch import dispatch
from appliance.courier.item import DeliveryOptions
from appliance.courier.policy import StreamPolicy
from appliance.courier.queue import Queue


def test_returned_envelope_stays_ahead_of_its_key():
    queue = Queue(lambda _: StreamPolicy(), 1e12)
    consumer = Consumer("t", "", lambda: None)
    queue.subscribe(consumer, "s", 0.0)
    queue.grant(consumer, 1, 0.0)
    stream = queue.open("s", 0.0)
    keyed = DeliveryOptions(key="k")
    for id_ in ("a", "b"):
        stream.put(id_, b"x", 0.0, keyed)
    stream.put("free", b"x", 0.0)
    dispatch(stream, 0.0)
    first = consumer.inflight["a"]
    stream.fail(first, 1.0, delay_ms=500)
    queue.grant(consumer, 5, 2.0)
    assert [item.id for item in consumer.outgoing] == ["a", "free"]
    queue.tick(600.0, 100)
    assert [item.id for item in consumer.outgoing] == ["a", "free", "a"]
    queue.ack(consumer, ["a"], 0.0)
    dispatch(stream, 601.0)
    assert consumer.outgoing[-1].id == "b"


def test_aging_prevents_starvation_of_low_priorities():
    queue = Queue(lambda _: StreamPolicy(aging_ms=1000), 1e12)
    stream = queue.open("s", 0.0)
    stream.put("low", b"x", 0.0, DeliveryOptions(priority=0))
    consumer = Consumer("t", "", lambda: None)
    queue.subscribe(consumer, "s", 0.0)
    order = []
    for number in range(20):
        now = number * 1000.0
        stream.put(f"high{number}", b"x", now, DeliveryOptions(priority=9))
        queue.grant(consumer, 1, now)
        order.append(consumer.outgoing[-1].id)
    assert "low" in order
    assert order[0] == "high0"
    assert order.index("low") <= 10
