"""Producers and consumers of the SDK with a served appliance."""

import pytest

from appliance.sdk.courier import Consumer, EnvelopeRefused, Producer
from appliance.sdk.courier import envelope as made
from tests.support.courier import (
    locate,
    stats,
)
from tests.support.until import until

pytestmark = pytest.mark.slow


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
