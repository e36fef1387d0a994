"""Producers and consumers for asyncio with a served appliance."""

import asyncio

import pytest

from appliance.sdk.courier import EnvelopeRefused
from appliance.sdk.courier import envelope as made
from appliance.sdk.courier_aio import AsyncConsumer, AsyncProducer
from tests.support.courier import (
    enqueue,
    locate,
    stats,
)

pytestmark = pytest.mark.slow


def test_asyncio_consumer(hub, stream):
    enqueue(hub, stream, *"abc")

    async def consume():
        seen = []
        async with AsyncConsumer(locate(hub), stream, credit=2) as consumer:
            async for delivery in consumer:
                seen.append(delivery.id)
                await delivery.ack()
                if len(seen) == 3:
                    break
        return seen

    assert asyncio.run(asyncio.wait_for(consume(), 20)) == ["a", "b", "c"]


def test_asyncio_producer_of_many_tasks(hub, stream):
    async def produce():
        async with AsyncProducer(locate(hub), window=50) as producer:
            sent = (producer.send(stream, made("t", n, id=f"e{n}")) for n in range(500))
            ids = await asyncio.gather(*sent)
            bad = (producer.send(stream, {"id": "no type"}) for _ in range(3))
            refused = await asyncio.gather(*bad, return_exceptions=True)
            producer._producer._link.close()  # like a broken connection
            return [*ids, await producer.send(stream, made("t", 1, id="after"))], refused

    ids, refused = asyncio.run(asyncio.wait_for(produce(), 30))
    assert ids == [*(f"e{n}" for n in range(500)), "after"]
    assert [(type(error), error.http_status) for error in refused] == [(EnvelopeRefused, 400)] * 3
    assert stats(hub, stream)["depth"] == 501
