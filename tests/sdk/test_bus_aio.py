"""Agents of asyncio: one works on the file, one over HTTP, on the same bus."""

import asyncio
from contextlib import aclosing

import pytest

from appliance.sdk.bus_aio import AsyncFileBus, AsyncHttpBus


@pytest.fixture(params=["file", "http"])
def join(request, hub):
    """Makes an agent of each kind, whose name is unique to the test."""
    kind = AsyncFileBus if request.param == "file" else AsyncHttpBus

    def make(name):
        return kind(f"{name}-{request.node.name}", workspace=hub.datadir.workspace)

    return make


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def test_claim_that_arrives_after_its_cancellation_is_released(join, task):
    async def work():
        async with join("ada") as ada, join("bob") as bob, join("eve") as eve:
            first = await ada.claim(task)
            waiting = asyncio.create_task(bob.claim(task, wait=30, lease_ms=600_000))
            await asyncio.sleep(0)  # the wait has begun
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await ada.release(task, first.fence)
            return (await eve.claim(task, wait=30)).claimed_by, eve.agent

    holder, eve = run(work())
    assert holder == eve


def test_stream_is_an_async_iterator(join):
    async def work():
        seen = []
        async with join("ada") as ada, join("bob") as bob:
            first = await ada.publish("work", 0, to=bob.agent)
            async with aclosing(bob.follow(first.seq - 1)) as following:
                async for message in following:
                    seen.append(message.payload)
                    if len(seen) == 3:
                        break
                    await ada.publish("work", len(seen), to=bob.agent)
        return seen

    assert run(work()) == [0, 1, 2]
