"""Consuming envelopes in asyncio.

async with AsyncConsumer(find_hub, "agents/Jen/inbox") as consumer:
    async for delivery in consumer:
        await work(delivery.envelope)
        await delivery.ack()

await consumer.run(work)     # ack when it returns, nack when it raises
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable
from typing import Any

from appliance.sdk.aio import CallThreads, ThreadedClient, iterate, run_in_thread
from appliance.sdk.closing import AsyncClosing
from appliance.sdk.courier import Consumer, Delivery, Env, Locate
from appliance.sdk.courier_frames import error_text


class AsyncDelivery(ThreadedClient):
    """A `Delivery` whose methods are coroutines."""

    def __init__(self, delivery: Delivery, threads: CallThreads) -> None:
        self._client, self._threads = delivery, threads
        self.attempt, self.envelope, self.id = delivery.attempt, delivery.envelope, delivery.id

    ack = run_in_thread(Delivery.ack)
    nack = run_in_thread(Delivery.nack)
    extend = run_in_thread(Delivery.extend)


class AsyncConsumer(AsyncClosing):
    """A `Consumer` for asyncio, with the same arguments, run in threads. Only one task may
    iterate, and only once."""

    def __init__(self, locate: Locate, stream: str, **options: Any) -> None:
        self._consumer = Consumer(locate, stream, **options)
        self._threads = CallThreads(1)

    async def __aiter__(self) -> AsyncGenerator[AsyncDelivery]:
        async for delivery in iterate(iter(self._consumer), self._consumer.stop):
            yield AsyncDelivery(delivery, self._threads)

    async def run(self, handler: Callable[[Env], Any]) -> None:
        """Call the handler, a coroutine function or a plain one, for every envelope until
        `stop`: ack on return, nack on an exception, with the error's type and message."""
        async for delivery in self:
            try:
                result = handler(delivery.envelope)
                if inspect.isawaitable(result):
                    await result
            except Exception as error:
                text = error_text(error)
                self._consumer.say(f"{delivery.id} failed: {text}")
                await delivery.nack(error=text)
            else:
                await delivery.ack()

    def stop(self) -> None:
        """End after the current delivery."""
        self._consumer.stop()

    async def close(self) -> None:
        """Send the last acks and disconnect. Envelopes that are neither acked nor nacked return to
        the stream at once."""
        self._consumer.stop()
        await asyncio.to_thread(self._consumer.close)
        self._threads.close()
