"""Consumers of patterns, and forgotten streams."""

from appliance.courier import recent_ids
from appliance.courier.consumer import Consumer
from appliance.courier.fair_dispatch import dispatch
from appliance.courier.policy import StreamPolicy
from appliance.courier.queue import Queue


def test_pattern_consumer_can_lease_equal_ids_from_two_streams():
    queue = Queue(lambda _: StreamPolicy(), 1e12)
    consumer = Consumer("t", "", lambda: None)
    queue.subscribe(consumer, "*", 0.0)
    queue.grant(consumer, 5, 0.0)
    for name in ("a", "b"):
        stream = queue.open(name, 0.0)
        stream.put("same", b"x", 0.0)
        dispatch(stream, 0.0)
    assert len(consumer.inflight) == 2
    assert queue.ack(consumer, ["same", "same", "same"], 0.0) == ["same"]
    assert consumer.inflight == {}


def test_pattern_consumer_does_not_keep_unused_streams(monkeypatch):
    monkeypatch.setattr(recent_ids, "SECONDS_MAX", 1.0)
    queue = Queue(lambda _: StreamPolicy(), 10_000)
    consumer, named = Consumer("t", "", lambda: None), Consumer("n", "", lambda: None)
    queue.subscribe(consumer, "*", 0.0)
    queue.subscribe(named, "named", 0.0)
    queue.grant(consumer, 5, 0.0)
    for number in range(50):
        stream = queue.open(f"task/{number}", 0.0)
        stream.put("a", b"x", 0.0)
    dispatch(stream, 0.0)
    for _ in range(10):
        queue.ack(consumer, [item.id for item in consumer.outgoing], 0.0)
        consumer.outgoing = []
        queue.grant(consumer, 5, 0.0)
    for second in range(1, 60):
        queue.tick(second * 1000.0, 10)
    assert list(queue.streams) == ["named"]
    assert [subscription.stream.name for subscription in consumer.subscriptions] == ["named"]
    queue.grant(consumer, 5, 60_000.0)
    recreated = queue.open("task/7", 60_000.0)
    recreated.put("b", b"x", 60_000.0)
    dispatch(recreated, 60_000.0)
    assert [item.id for item in consumer.outgoing] == ["b"]
    assert list(consumer.inflight.values()) == consumer.outgoing
