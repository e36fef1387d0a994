"""Fair dispatch among consumers."""

import random

from appliance.courier.consumer import Consumer
from appliance.courier.fair_dispatch import dispatch
from appliance.courier.policy import StreamPolicy
from appliance.courier.queue import Queue


def queue_with_consumers(count: int, credit: int = 1) -> tuple[Queue, list[Consumer]]:
    queue = Queue(lambda _: StreamPolicy(), 1e12)
    consumers = [Consumer(str(number), "", lambda: None) for number in range(count)]
    for consumer in consumers:
        queue.subscribe(consumer, "s", 0.0)
        queue.grant(consumer, credit, 0.0)
    return queue, consumers


def test_saturated_stream_is_fair_to_consumers_of_different_speed():
    """Sixteen consumers with credit 1, some ten times quicker than others, none slow."""
    queue, consumers = queue_with_consumers(16)
    stream, rng, now = queue.open("s", 0.0), random.Random(3), 0.0
    shares = dict.fromkeys(consumers, 0)
    back = {}
    for number in range(20_000):
        stream.put(f"e{number}", b"x", now)
        if number < 64:
            continue
        dispatch(stream, now)
        for consumer in consumers:
            if consumer.outgoing:
                shares[consumer] += len(consumer.outgoing)
                queue.ack(consumer, [item.id for item in consumer.outgoing], 0.0)
                consumer.outgoing = []
                back[consumer] = now + rng.choice([0.1, 0.2, 1.0])
        now += 0.05
        for consumer in [root for root, at in back.items() if at <= now]:
            del back[consumer]
            queue.grant(consumer, 1, now)
    assert min(shares.values()) / max(shares.values()) >= 0.95


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
