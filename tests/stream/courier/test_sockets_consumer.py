"""Consumers on a served appliance: credit, leases, batches with redeliveries."""

import json
import socket

import pytest

from tests.support.courier import (
    enqueue,
    envelope,
    opened,
    receive_frame,
    send,
    stats,
    subscribed,
)
from tests.support.until import until


def test_deliveries_need_credit_and_keep_the_order(hub, stream):
    enqueue(hub, stream, "a", "b", "c")
    with subscribed(hub, stream) as consumer:
        send(consumer, credit=0)
        with pytest.raises(TimeoutError):
            receive_frame(consumer, 0.3)
        send(consumer, credit=2)
        assert [receive_frame(consumer)["deliver"]["id"] for _ in range(2)] == ["a", "b"]
        with pytest.raises(TimeoutError):
            receive_frame(consumer, 0.3)
        send(consumer, ack="a", credit=1)
        assert receive_frame(consumer)["deliver"] == {**envelope("c"), "to": stream}


@pytest.mark.parametrize(
    ("frame", "field"),
    [
        ("junk", None),
        ('{"dance":1}', "dance"),
        ('{"credit":99999999}', "credit"),
        ('{"credit":1e400}', None),
        (json.dumps({"ack": ["x"] * 1001}), "ack"),
        ('{"nack":"a","mode":"maybe"}', "mode"),
        ('{"nack":"a","delayMs":-5}', "delayMs"),
    ],
)
def test_invalid_frame_gets_an_error_and_changes_nothing(hub, frame, field):
    stream = "tests/wrong"
    with subscribed(hub, stream) as consumer:
        consumer.send(frame)
        error = receive_frame(consumer)["error"]
        assert error["code"] == 400
        assert error["message"]
        if field is not None:
            assert error["field"] == field
        enqueue(hub, stream, "a" + frame.encode().hex()[:150])
        send(consumer, credit=1)
        delivered = receive_frame(consumer)["deliver"]
        send(consumer, ack=delivered["id"], credit=0)
        until(lambda: stats(hub, stream)["depth"] == 0, 10, "the ack arrives")


def test_disconnect_releases_leases_without_counting_attempts(hub):
    stream = "durable/leaving"
    enqueue(hub, stream, *"abc")
    for _ in range(5):  # more often than deliveries_max
        with subscribed(hub, stream, "&credit=3") as consumer:
            got = [receive_frame(consumer) for _ in range(3)]
        assert [frame["deliver"]["id"] for frame in got] == ["a", "b", "c"]
        until(lambda: stats(hub, stream)["ready"] == 3, 10, "all are back")
    assert stats(hub, stream)["dead"] == 0


def test_consumer_that_crashes_counts_as_an_attempt_so_that_poison_ends(hub):
    """Closed by the kernel as after kill -9: no close frame."""
    stream = "crashing/poison"
    enqueue(hub, stream, "a")
    for attempt in range(1, 26):
        with opened(hub, f"/v1/subscribe?stream={stream}&credit=1") as consumer:
            frame = receive_frame(consumer)
            assert frame.get("attempt", 1) == attempt
            consumer.socket.shutdown(socket.SHUT_RDWR)
        until(lambda: stats(hub, stream)["ready"] + stats(hub, stream)["dead"], 10, "it is back")
    assert stats(hub, stream)["dead"] == 1


def test_batch_with_a_redelivery_has_the_numbers_of_the_attempts(hub, stream):
    enqueue(hub, stream, "a", "b")
    with subscribed(hub, stream, "&batch=10&credit=2") as consumer:
        assert "attempts" not in receive_frame(consumer)
        send(consumer, nack="a")
        until(lambda: stats(hub, stream)["ready"] == 1, 10, "it is ready again")
        enqueue(hub, stream, "c")
        send(consumer, credit=2)
        frame = receive_frame(consumer)
        assert [envelope["id"] for envelope in frame["deliver"]] == ["a", "c"]
        assert frame["attempts"] == [2, 1]
