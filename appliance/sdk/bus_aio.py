"""The worker bus for asyncio: `FileBus` and `HttpBus` methods as coroutines.

    async with AsyncFileBus("ada") as bus:                 # or AsyncHttpBus("ada", url=…, token=…)
        claim = await bus.claim("task-7", wait=60)
        await bus.publish("task_progress", {"progress": 0.5}, task="task-7")
        await bus.release("task-7", claim.fence)

Cancelling a call stops the wait; the effect may still happen. A claim that arrives after the
cancellation is released.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from weakref import WeakSet

from appliance.busfile.claims import LEASE_MS, BusClaim
from appliance.busfile.heartbeats import HeartbeatThread, Status
from appliance.busfile.messages import BusMessage
from appliance.sdk.aio import ThreadedClient, iterate, run_in_thread
from appliance.sdk.bus import BusAgent, FileBus, HttpBus
from appliance.sdk.http import REQUEST_WAIT_SECONDS_MAX


class AsyncBus(ThreadedClient):
    """Methods for both kinds of asyncio agents."""

    kind: type[BusAgent]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._join = partial(self.kind, *arguments, **options)
        self._followers = WeakSet[BusAgent]()
        super().__init__(self._join())

    async def close(self) -> None:
        for agent in list(self._followers):
            await asyncio.to_thread(agent.close)
        await super().close()

    @property
    def agent(self) -> str:
        return str(self._client.agent)

    publish = run_in_thread(FileBus.publish)
    poll = run_in_thread(FileBus.poll)
    ack = run_in_thread(FileBus.ack)
    renew = run_in_thread(FileBus.renew)
    release = run_in_thread(FileBus.release)
    beat = run_in_thread(FileBus.beat)
    status = run_in_thread(FileBus.status)
    transition = run_in_thread(FileBus.transition)

    def follow(
        self, after: int | None = None, *, every: bool = False
    ) -> AsyncGenerator[BusMessage]:
        """Follow messages, like `FileBus.follow`. End it with `close`, or close the iterator."""
        agent = self._join()
        self._followers.add(agent)
        return iterate(agent.follow(after, every=every), agent.close)

    @asynccontextmanager
    async def heartbeat(
        self, status: Status = "working", task: str | None = None
    ) -> AsyncIterator[HeartbeatThread]:
        """Send a heartbeat every ten seconds, from a thread, until the block ends."""
        thread = await self._threads.submit(partial(self._client.heartbeat, status, task))
        try:
            yield thread
        finally:
            await asyncio.to_thread(thread.stop)

    async def claim(self, task: str, *, wait: float = 0.0, lease_ms: int = LEASE_MS) -> BusClaim:
        """Claim, or wait for the claim. Raises ClaimHeld."""
        claiming = self._threads.submit(
            partial(self._client.claim, task, wait=wait, lease_ms=lease_ms)
        )
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            claiming.add_done_callback(self._release_late)
            raise

    async def consume(
        self, handler: Callable[[BusMessage], object], *, wait: float = REQUEST_WAIT_SECONDS_MAX
    ) -> int:
        """Consume like `FileBus.consume`, with a coroutine function or a plain one."""
        batch = await self.poll(wait=wait)
        for message in batch:
            result = handler(message)
            if inspect.isawaitable(result):
                await result
            await self.ack(message.seq)
        return len(batch)

    def _release_late(self, claiming: "asyncio.Future[BusClaim]") -> None:
        if not claiming.exception() and not self._threads.closed:
            claim = claiming.result()
            self._threads.submit(partial(self._client.release, claim.task_id, claim.fence))


class AsyncFileBus(AsyncBus):
    """A `FileBus` for asyncio, with the same arguments."""

    kind = FileBus


class AsyncHttpBus(AsyncBus):
    """An `HttpBus` for asyncio, with the same arguments."""

    kind = HttpBus
