"""Consumers on a served appliance: credit, leases, batches, patterns, fairness."""

import json
import threading
from contextlib import ExitStack

import pytest

from tests.support.courier import (
    enqueue,
    envelope,
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


def test_double_and_foreign_acks_get_409_frames(hub, stream):
    enqueue(hub, stream, "a", "b")
    with subscribed(hub, stream, "&credit=1") as consumer, subscribed(hub, stream) as other:
        assert receive_frame(consumer)["deliver"]["id"] == "a"
        send(other, ack="a")
        assert receive_frame(other)["error"]["code"] == 409
        send(consumer, ack="a")
        send(consumer, ack="a")
        error = receive_frame(consumer)["error"]
        assert (error["code"], error["id"], error["name"]) == (409, "a", "LEASE_LOST")
        send(consumer, credit=1)
        assert receive_frame(consumer)["deliver"]["id"] == "b"


@pytest.mark.parametrize(
    ("frame", "field"),
    [
        ("junk", None),
        ("[1]", None),
        ("{}", None),
        ('{"dance":1}', "dance"),
        ('{"credit":-1}', "credit"),
        ('{"credit":"5"}', "credit"),
        ('{"credit":1.5}', "credit"),
        ('{"credit":99999999}', "credit"),
        ('{"credit":1e400}', None),
        ('{"ack":7}', "ack"),
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


def test_expired_lease_is_redelivered_to_another_consumer(hub, stream):
    enqueue(hub, stream, "a")
    with subscribed(hub, stream, "&credit=1&leaseMs=150") as lazy:
        assert receive_frame(lazy)["deliver"]["id"] == "a"
        with subscribed(hub, stream, "&credit=1") as other:
            frame = receive_frame(other)
            assert (frame["deliver"]["id"], frame["attempt"]) == ("a", 2)
            send(lazy, ack="a")
            assert receive_frame(lazy)["error"]["code"] == 409


def test_extended_lease_is_kept(hub, stream):
    enqueue(hub, stream, "a")
    with subscribed(hub, stream, "&credit=1&leaseMs=300") as consumer:
        receive_frame(consumer)
        send(consumer, extend="a", leaseMs=60_000)
        with subscribed(hub, stream, "&credit=1") as other, pytest.raises(TimeoutError):
            receive_frame(other, 0.8)
        send(consumer, ack="a")
        until(lambda: stats(hub, stream)["acked"] == 1, 10, "the ack arrives")


def test_nack_modes_and_delay(hub, stream):
    enqueue(hub, stream, "a")
    with subscribed(hub, stream, "&credit=10") as consumer:
        receive_frame(consumer)
        send(consumer, nack="a")
        assert receive_frame(consumer)["attempt"] == 2
        send(consumer, nack="a", delayMs=200)
        with pytest.raises(TimeoutError):
            receive_frame(consumer, 0.1)
        assert receive_frame(consumer)["deliver"]["id"] == "a"
        send(consumer, nack="a", mode="reject", error="never")
        until(lambda: stats(hub, stream)["dead"] == 1, 10, "it is a dead letter")


def test_batches_and_several_acks_in_one_frame(hub, stream):
    enqueue(hub, stream, *(f"e{number}" for number in range(25)))
    with subscribed(hub, stream, "&batch=10&credit=25") as consumer:
        frames = [receive_frame(consumer)["deliver"] for _ in range(3)]
        assert [len(frame) for frame in frames] == [10, 10, 5]
        ids = [env["id"] for frame in frames for env in frame]
        assert ids == [f"e{number}" for number in range(25)]
        send(consumer, ack=ids)
        until(lambda: stats(hub, stream)["acked"] == 25, 10, "all acks arrive")


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


def test_pattern_receives_from_existing_and_new_streams(hub):
    enqueue(hub, "fan/1/inbox", "a")
    with subscribed(hub, "fan/*/inbox", "&credit=5") as consumer:
        assert receive_frame(consumer)["deliver"]["to"] == "fan/1/inbox"
        enqueue(hub, "fan/2/inbox", "b")
        assert receive_frame(consumer)["deliver"]["to"] == "fan/2/inbox"
        send(consumer, ack=["a", "b"])
        until(lambda: stats(hub, "fan/2/inbox")["acked"] == 1, 10, "the acks arrive")


def test_many_consumers_share_fairly(hub, stream):
    counts = dict.fromkeys(range(8), 0)
    with ExitStack() as stack:
        consumers = [stack.enter_context(subscribed(hub, stream, "&credit=1")) for _ in counts]

        def take(number):
            try:
                while True:
                    frame = receive_frame(consumers[number], 2)
                    counts[number] += 1
                    send(consumers[number], ack=frame["deliver"]["id"], credit=1)
            except TimeoutError:
                return

        threads = [threading.Thread(target=take, args=(number,)) for number in counts]
        for at in range(0, 800, 200):
            enqueue(hub, stream, *(f"e{number}" for number in range(at, at + 200)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert sum(counts.values()) == 800
    assert min(counts.values()) >= 25, "nobody starves; how even it is depends on the machine"
