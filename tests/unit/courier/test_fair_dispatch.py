"""Fair dispatch among consumers."""

from appliance.courier.consumer import Consumer
from appliance.courier.policy import StreamPolicy
from appliance.courier.queue import Queue


def test_pattern_is_served_from_its_streams_in_turn():
    queue = Queue(lambda _: StreamPolicy(), 1e12)
    for name in ("a/1", "a/2", "b"):
        stream = queue.open(name, 0.0)
        for number in range(50):
            stream.put(f"{name}-{number}", b"x", 0.0)
    consumer = Consumer("t", "", lambda: None)
    queue.subscribe(consumer, "a/*", 0.0)
    queue.grant(consumer, 40, 0.0)
    counts = {name: sum(i.stream.name == name for i in consumer.outgoing) for name in queue.streams}
    assert counts == {"a/1": 20, "a/2": 20, "b": 0}
    late = queue.open("a/3", 1.0)
    queue.grant(consumer, 1, 1.0)
    late.put("new", b"x", 1.0)
    assert [subscription.stream.name for subscription in consumer.subscriptions] == [
        "a/1",
        "a/2",
        "a/3",
    ]
