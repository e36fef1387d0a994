"""Asyncio: producing, and consuming with `async for` while leases are renewed.

    async with AsyncProducer(locate) as producer:
        await producer.send("agents/Jen/inbox", envelope("sprint.assign", {"wave": "B"}))

    async with AsyncConsumer(locate, "agents/Jen/inbox") as consumer:
        async for delivery in consumer:
            await work(delivery.envelope)
            await delivery.ack()

Both run the classes of `courier.py` in threads of their own.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Self

from appliance.sdk.aio import CallThreads, ThreadIterator
from appliance.sdk.closing import AsyncClosing
from appliance.sdk.courier import (
    DEFAULT_LEASE_MS,
    Consumer,
    Delivery,
    Env,
    Locate,
    Posted,
    Producer,
    Renewal,
)


class AsyncDelivery:
    """An envelope leased to this consumer until it is acked or nacked, or the lease expires."""

    __slots__ = ("_delivery", "_threads", "attempt", "envelope", "id")

    def __init__(self, delivery: Delivery, threads: CallThreads) -> None:
        self._delivery = delivery
        self._threads = threads
        self.envelope = delivery.envelope
        self.attempt = delivery.attempt
        self.id = delivery.id

    async def ack(self) -> None:
        await self._threads.submit(self._delivery.ack)

    async def nack(self, mode: str = "fail", delay_ms: int | None = None, error: str = "") -> None:
        await self._threads.submit(partial(self._delivery.nack, mode, delay_ms, error))


class AsyncConsumer(AsyncClosing):
    """Receives from one stream or a pattern without end. Only one task may iterate over it."""

    def __init__(
        self,
        locate: Locate,
        stream: str,
        *,
        credit: int = 100,
        lease_ms: int | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._say = say
        self._threads = CallThreads(2)  # one receives, the other one sends
        self._consumer = Consumer(
            locate, stream, credit=credit, lease_ms=lease_ms, say=say, insist=True
        )
        self._deliveries = ThreadIterator(iter(self._consumer), self._threads)
        self._renewal = Renewal(self._consumer.renew, lease_ms or DEFAULT_LEASE_MS)

    async def __aenter__(self) -> Self:
        self._renewal.__enter__()
        return self

    def __aiter__(self) -> AsyncIterator[AsyncDelivery]:
        return self

    async def __anext__(self) -> AsyncDelivery:
        return AsyncDelivery(await anext(self._deliveries), self._threads)

    async def run(self, handler: Callable[[Env], Awaitable[Any]]) -> None:
        """Call the handler for every envelope: ack when it returns, nack when it raises."""
        async for delivery in self:
            try:
                await handler(delivery.envelope)
            except Exception as error:
                self._say(f"{delivery.id} failed: {type(error).__name__}")
                await delivery.nack(error=type(error).__name__)
            else:
                await delivery.ack()

    async def close(self) -> None:
        """Disconnect. Envelopes that are neither acked nor nacked return to the stream at once."""
        self._consumer.stop()
        await asyncio.to_thread(self._disconnect)

    def _disconnect(self) -> None:
        self._renewal.end()
        self._consumer.close()


class AsyncProducer(AsyncClosing):
    """Sends over one socket; any number of tasks may send at the same time.

    What they send while a thread waits for responses is sent together afterwards. After a broken
    connection, envelopes without a response are sent again; their ids prevent duplicates.
    """

    def __init__(self, locate: Locate, *, window: int = 1_000, attempts_max: int = 6) -> None:
        """At most `window` envelopes are sent without a response."""
        self._producer = Producer(locate, window=window, attempts_max=attempts_max)
        self._threads = CallThreads(1)
        self._slots = asyncio.Semaphore(window)
        self._waiting: list[tuple[Posted, asyncio.Future[None]]] = []
        self._sending: asyncio.Task[None] | None = None

    async def send(self, to: str, env: Env) -> str:
        """Send one envelope and return its id. Raises EnvelopeRefused."""
        async with self._slots:
            answer = asyncio.get_running_loop().create_future()
            self._waiting.append((Posted(to, env), answer))
            if self._sending is None or self._sending.done():
                self._sending = asyncio.create_task(self._send_waiting())
            await answer
        return str(env["id"])

    async def close(self) -> None:
        await self._threads.submit(self._producer.close)

    async def _send_waiting(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            send = partial(self._producer.send_each, [posted for posted, _ in waiting])
            try:
                errors: list[Exception | None] = [*await self._threads.submit(send)]
            except Exception as failure:
                errors = [failure] * len(waiting)
            for (_, answer), error in zip(waiting, errors, strict=True):
                if answer.done():
                    continue  # the caller was cancelled
                if error is None:
                    answer.set_result(None)
                else:
                    answer.set_exception(error)
