"""Handlers that a call does not run are refused, and AsyncConsumer runs them."""

import asyncio
import functools

import pytest

from appliance.sdk.aio import AsyncClient
from appliance.sdk.bus import FileBus
from appliance.sdk.bus_aio import AsyncFileBus
from appliance.sdk.client import Client
from appliance.sdk.courier import Consumer
from appliance.sdk.courier_aio import AsyncConsumer
from appliance.sdk.network.agent import NetworkAgent
from appliance.sdk.plain_handler import HandlerNotPlain
from tests.support.courier import enqueue, locate, stats

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


async def coroutine_function(value):
    raise AssertionError("must not run")


def generator_function(value):
    yield value


async def async_generator_function(value):
    yield value


def plain_outside(value):
    return coroutine_function(value)


DEFERRED = [
    coroutine_function, generator_function, async_generator_function,
    functools.partial(coroutine_function),
]  # fmt: skip


@pytest.mark.parametrize("handler", DEFERRED, ids=lambda handler: type(handler).__name__)
def test_threaded_clients_refuse_handlers_that_a_call_does_not_run(hub, stream, handler, tmp_path):
    for register in (
        Consumer(locate(hub), stream).run,
        Consumer(locate(hub), stream).handler,
        FileBus("ada", hub.workspace).consume,
        functools.partial(Client(hub.workspace).on, "error"),
        functools.partial(AsyncClient(hub.workspace).on, "error"),
        lambda given: NetworkAgent(tmp_path / "a.agent", on_message=given),
    ):
        with pytest.raises(HandlerNotPlain):
            register(handler)


def test_envelope_is_not_acked_if_its_handler_returns_a_coroutine(hub, stream):
    enqueue(hub, stream, "a")
    with Consumer(locate(hub), stream) as consumer, pytest.raises(HandlerNotPlain):
        consumer.run(plain_outside)
    assert stats(hub, stream)["acked"] == 0


def test_bus_message_is_not_acked_if_its_handler_returns_a_coroutine(hub):
    ada, bob = FileBus("ada", hub.workspace), FileBus("bob", hub.workspace)
    ada.publish("note", 1, to="bob")
    with pytest.raises(HandlerNotPlain):
        bob.consume(plain_outside, wait=0)
    seen = []
    assert bob.consume(lambda message: seen.append(message.payload), wait=0) == 1
    assert seen == [1]


@pytest.mark.parametrize("is_async", [True, False])
def test_async_consumer_runs_coroutine_functions_and_plain_ones(hub, stream, is_async):
    enqueue(hub, stream, "a", "bad", "c")
    seen = []

    async def work():
        async with AsyncConsumer(locate(hub), stream) as consumer:

            def handle(env):
                seen.append(env["id"])
                if len(seen) == 3:
                    consumer.stop()
                if env["id"] == "bad":
                    raise ValueError("no\ud800 good")

            async def handle_later(env):
                await asyncio.sleep(0)
                handle(env)

            await consumer.run(handle_later if is_async else handle)

    asyncio.run(asyncio.wait_for(work(), 60))
    assert seen == ["a", "bad", "c"]
    details = hub.request("GET", f"/v1/envelope?stream={stream}&id=bad")
    assert details["history"][0]["error"] == "ValueError: no? good"
    assert stats(hub, stream)["acked"] == 2


def test_async_consumer_is_an_async_iterator(hub, stream):
    enqueue(hub, stream, "a", "b")

    async def work():
        attempts = []
        async with AsyncConsumer(locate(hub), stream) as consumer:
            async for delivery in consumer:
                attempts.append((delivery.id, delivery.attempt))
                if len(attempts) == 1:
                    await delivery.extend(60_000)
                    await delivery.nack("release")
                else:
                    await delivery.ack()
                if stats(hub, stream)["depth"] == 0:
                    return attempts
        return attempts

    assert asyncio.run(asyncio.wait_for(work(), 60)) == [("a", 1), ("b", 1), ("a", 1)]


def test_async_bus_runs_plain_handlers_too(hub):
    ada, seen = FileBus("ada", hub.workspace), []
    for number in range(2):
        ada.publish("note", number, to="carl")

    async def handle(message):
        seen.append(message.payload)

    async def work():
        async with AsyncFileBus("carl", workspace=hub.workspace) as carl:
            await carl.consume(lambda message: seen.append(message.payload), wait=0)
            ada.publish("note", 2, to="carl")
            await carl.consume(handle, wait=0)

    asyncio.run(asyncio.wait_for(work(), 60))
    assert seen == [0, 1, 2]
