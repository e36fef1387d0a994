"""The client for asyncio: methods as coroutines, events as an async iterator.

    async with AsyncClient() as hub:
        await hub.send_message(topic_id, sender="me", content_raw="hello")
        async for event in hub.events():
            ...

All methods run in the client's threads, on kept-alive connections; `events` has a separate thread
while waiting. Cancelling a call stops the wait; the hub may still process the request.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from appliance.sdk import models
from appliance.sdk.client import Client
from appliance.sdk.closing import AsyncClosing
from appliance.sdk.cursor import Cursor
from appliance.sdk.http import ClientClosed
from appliance.sdk.plain_handler import require_plain

THREADS_MAX = 8
P = ParamSpec("P")
T = TypeVar("T")


class CallThreads:
    """Threads in which an asyncio client runs calls that wait. They end with `close`."""

    def __init__(self, threads_max: int) -> None:
        self._pool = ThreadPoolExecutor(threads_max, "agentlip")
        self.closed = False

    def submit(self, verb: Callable[[], T]) -> "asyncio.Future[T]":
        if self.closed:
            raise ClientClosed
        return asyncio.get_running_loop().run_in_executor(self._pool, verb)

    def close(self) -> None:
        self.closed = True
        self._pool.shutdown(wait=False)


class ThreadedClient(AsyncClosing):
    """A client on one event loop whose calls run in threads."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._threads = CallThreads(THREADS_MAX)

    async def close(self) -> None:
        """End everything that waits."""
        self._threads.close()
        await asyncio.to_thread(self._client.close)


async def iterate(
    values: Generator[T], end: Callable[[], object] = lambda: None
) -> AsyncGenerator[T]:
    """Yield the values, which a separate thread takes. `end` ends a wait for one."""
    thread = CallThreads(1)
    try:
        while (value := await thread.submit(partial(next, values, None))) is not None:
            yield value
    finally:
        await asyncio.to_thread(end)
        await thread.submit(values.close)
        thread.close()


def run_in_thread(
    verb: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[ThreadedClient, P], Awaitable[T]]:
    """Return the client's method, run in a thread."""

    async def call(self: ThreadedClient, /, *args: P.args, **more: P.kwargs) -> T:
        method = getattr(self._client, verb.__name__)
        return await self._threads.submit(partial(method, *args, **more))

    call.__name__, call.__doc__ = verb.__name__, verb.__doc__
    return call


class AsyncClient(ThreadedClient):
    """A `Client` for asyncio, with the same arguments. Belongs to one event loop, which runs all
    callbacks."""

    _client: Client
    disconnect = ThreadedClient.close

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(Client(*args, **more))
        self._client.on_new_history = self._call_in_loop(self._client.on_new_history)
        self._loop: asyncio.AbstractEventLoop

    @property
    def cursor(self) -> Cursor:
        return self._client.cursor

    async def connect(self) -> Self:
        """Check that the hub runs and serves this workspace. Other calls do this by themselves."""
        await self._threads.submit(self._client.connect)
        return self

    def on(self, name: str, handler: Callable[[Any], object]) -> None:
        """Register a handler, like `Client.on`; handlers are plain functions."""
        self._client.on(name, self._call_in_loop(require_plain(handler)))

    # -- events ----------------------------------------------------------------------

    def events(self) -> AsyncGenerator[models.Envelope, None]:
        """Iterate over events, like `Client.events`. End it with `close`, or close the iterator."""
        self._loop = asyncio.get_running_loop()
        return iterate(self._client.events(), self._client.end_events)

    def _call_in_loop(self, function: Callable[[Any], T]) -> Callable[[Any], T]:
        """Return `function` for the thread that runs `events`: the event loop calls it."""

        async def call(argument: Any) -> T:
            return function(argument)

        return lambda argument: asyncio.run_coroutine_threadsafe(
            call(argument), self._loop
        ).result()

    # -- verbs -----------------------------------------------------------------------

    acknowledge = run_in_thread(Client.acknowledge)
    create_channel = run_in_thread(Client.create_channel)
    create_topic = run_in_thread(Client.create_topic)
    rename_topic = run_in_thread(Client.rename_topic)
    send_message = run_in_thread(Client.send_message)
    send_messages = run_in_thread(Client.send_messages)
    edit_message = run_in_thread(Client.edit_message)
    delete_message = run_in_thread(Client.delete_message)
    retopic_message = run_in_thread(Client.retopic_message)
    add_attachment = run_in_thread(Client.add_attachment)
    list_channels = run_in_thread(Client.list_channels)
    list_topics = run_in_thread(Client.list_topics)
    get_message = run_in_thread(Client.get_message)
    tail_messages = run_in_thread(Client.tail_messages)
    page_messages = run_in_thread(Client.page_messages)
    list_attachments = run_in_thread(Client.list_attachments)
    list_events = run_in_thread(Client.list_events)
    list_enrichments = run_in_thread(Client.list_enrichments)
    search = run_in_thread(Client.search)
    list_entries = run_in_thread(Client.list_entries)
    acknowledge_entries = run_in_thread(Client.acknowledge_entries)
    acknowledge_range = run_in_thread(Client.acknowledge_range)
    decline_entry = run_in_thread(Client.decline_entry)
    receipts = run_in_thread(Client.receipts)
    follow_topic = run_in_thread(Client.follow_topic)
    unfollow_topic = run_in_thread(Client.unfollow_topic)
    catch_up = run_in_thread(Client.catch_up)
    topic_state = run_in_thread(Client.topic_state)
    resolve_topic = run_in_thread(Client.resolve_topic)
    reopen_topic = run_in_thread(Client.reopen_topic)
    write_handoff = run_in_thread(Client.write_handoff)
    pin_message = run_in_thread(Client.pin_message)
    unpin_message = run_in_thread(Client.unpin_message)
    list_pins = run_in_thread(Client.list_pins)
    put_file = run_in_thread(Client.put_file)
    get_file = run_in_thread(Client.get_file)
    save_file = run_in_thread(Client.save_file)
    erase_file = run_in_thread(Client.erase_file)
    pause = run_in_thread(Client.pause)
    resume = run_in_thread(Client.resume)
    list_pauses = run_in_thread(Client.list_pauses)
    set_ceiling = run_in_thread(Client.set_ceiling)
    remove_ceiling = run_in_thread(Client.remove_ceiling)
    list_ceilings = run_in_thread(Client.list_ceilings)
    send = run_in_thread(Client.send)
    send_status = run_in_thread(Client.send_status)
    receive = run_in_thread(Client.receive)
    ack = run_in_thread(Client.ack)
    ask = run_in_thread(Client.ask)
    wait_for_answer = run_in_thread(Client.wait_for_answer)

    def entries(self, name: str | None = None) -> AsyncGenerator[models.Entry]:
        """Iterate asynchronously over `Client.entries`."""
        return iterate(self._client.entries(name))

    def messages(self, topic_id: str) -> AsyncGenerator[models.Message]:
        """Iterate asynchronously over `Client.messages`."""
        return iterate(self._client.messages(topic_id))
