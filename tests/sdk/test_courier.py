"""Producers and consumers of the SDK with a served appliance."""

import threading

import pytest

from appliance.sdk.courier import Consumer, EnvelopeRefused, Producer
from appliance.sdk.courier import envelope as made
from tests.support.courier import (
    TOML,
    enqueue,
    locate,
    stats,
)
from tests.support.hubprocess import HubProcess
from tests.support.until import until

pytestmark = pytest.mark.slow


def first_of(deliveries):
    for _ in range(100):  # a fifth of a second each
        delivery = next(deliveries)
        if delivery is not None:
            return delivery
    raise AssertionError("nothing came")


def test_producer_and_consumer_of_the_sdk(hub, stream):
    with Producer(locate(hub)) as producer:
        first = producer.send(stream, made("t", {"n": 0}, "jen"))
        count = producer.send_many(stream, (made("t", {"n": n}) for n in range(1, 2000)))
        assert count == 1999
        with pytest.raises(EnvelopeRefused) as refused:
            producer.send(stream, {"id": "x"})
        assert refused.value.http_status == 400
    consumer = Consumer(locate(hub), stream, credit=500)
    seen = []
    for delivery in consumer:
        seen.append(delivery.envelope["payload"]["n"])
        delivery.ack()
        if len(seen) == 2000:
            break
    consumer.close()
    assert first
    assert seen == list(range(2000))
    until(lambda: stats(hub, stream)["acked"] == 2000, 10, "all acks arrive")


def test_lease_is_renewed_while_a_handler_runs(hub, stream):
    enqueue(hub, stream, "a", "bad")
    consumer = Consumer(locate(hub), stream, lease_ms=300, credit=2)
    seen, slow = [], threading.Event()

    @consumer.handler
    def work(env):
        seen.append(env["id"])
        if env["id"] == "a":
            slow.wait(1.0)
        elif seen.count("bad") < 2:
            raise ValueError("a fault")
        if seen.count("bad") == 2:
            consumer.stop()

    consumer.run()
    consumer.close()
    assert seen == ["a", "bad", "bad"]
    until(lambda: stats(hub, stream)["acked"] == 2, 10, "both are acked")


def test_consumer_reconnects_after_a_restart(tmp_path):
    (tmp_path / "agentlip.toml").write_text(TOML)
    hub = HubProcess(tmp_path, "--no-limits")
    with hub.running():
        consumer = Consumer(lambda: locate(hub)(), "durable/c", sleep=lambda _: None)
        deliveries = consumer.deliveries(0.2)
        enqueue(hub, "durable/c", "a")
        first_of(deliveries).ack()
        next(deliveries)  # acks go out before the next wait
        until(lambda: stats(hub, "durable/c")["acked"] == 1, 10, "the ack arrives")
        hub.stop()
        hub.start()
        enqueue(hub, "durable/c", "b")
        assert first_of(deliveries).id == "b"
        consumer.close()
