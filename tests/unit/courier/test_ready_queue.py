"""Priorities and partition keys: the order in which envelopes are delivered."""

from appliance.courier.consumer import Consumer
from appliance.courier.item import DeliveryOptions
from appliance.courier.policy import StreamPolicy
from appliance.courier.queue import Queue


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
