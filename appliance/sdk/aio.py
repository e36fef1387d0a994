"""The client for asyncio: the same methods as coroutines, events as an async iterator.

    async with AsyncClient() as hub:
        await hub.send_message(topic_id, sender="me", content_raw="hello")
        async for event in hub.events():
            ...

The event stream uses asyncio itself. All other methods run in the client's threads, on
kept-alive connections. Cancelling a call stops the wait for it; the hub may still process
the request.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from websockets.asyncio.client import ClientConnection, connect

from appliance.kernel.errors import Invalid
from appliance.sdk import models
from appliance.sdk.client import Client, decode_event
from appliance.sdk.cursor import CURSOR_SECONDS, Cursor
from appliance.sdk.stream_follower import (
    HELLO_TIMEOUT_SECONDS,
    SESSION_ERRORS,
    CallbackError,
    StreamBroken,
    StreamEvent,
    StreamState,
    call_user,
    socket_options,
    socket_url,
)

THREADS_MAX = 8
P = ParamSpec("P")
T = TypeVar("T")


def _run_in_thread(
    verb: Callable[Concatenate[Client, P], T],
) -> Callable[Concatenate["AsyncClient", P], Awaitable[T]]:
    """The method of `Client`, run in a thread."""

    async def call(self: "AsyncClient", /, *args: P.args, **more: P.kwargs) -> T:
        return await self._run(partial(verb, self._client, *args, **more))

    call.__name__, call.__doc__ = verb.__name__, verb.__doc__
    return call


class AsyncClient:
    """Takes the arguments of `Client`. Belongs to one event loop."""

    def __init__(self, *args: Any, **more: Any) -> None:
        self._client = Client(*args, **more)
        self._threads = ThreadPoolExecutor(THREADS_MAX, "agentlip")
        self._closed = asyncio.Event()
        self._socket: ClientConnection | None = None
        self._course: StreamState | None = None

    @property
    def cursor(self) -> Cursor:
        return self._client.cursor

    async def connect(self) -> Self:
        """Check that the hub runs and serves this workspace. Other calls do this by themselves."""
        await self._run(self._client.connect)
        return self

    async def close(self) -> None:
        """End `events` and every call that waits."""
        self._closed.set()
        self._client.close()
        if self._socket is not None:
            await self._socket.close()
        self._threads.shutdown(wait=False)

    disconnect = close

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def on(self, name: str, handler: Callable[[Any], object]) -> None:
        """Like `Client.on`; handlers are plain functions."""
        self._client.on(name, handler)

    # -- events ----------------------------------------------------------------------

    async def events(self) -> AsyncGenerator[models.Envelope, None]:
        """Like `Client.events`. End it with `close`, or close the iterator."""
        if self._course is not None:
            raise Invalid("this client already streams events; create another client")
        client = self._client
        course = StreamState(
            client.subscriptions,
            after=client.cursor.event_id,
            epoch=client.cursor.epoch,
            restart=client.on_new_history,
            signals=client.signals,
            insist=client.wait,
        )
        self._course = course
        try:
            while not self._closed.is_set():
                try:
                    async with aclosing(self._session(course)) as session:
                        async for event in session:
                            if event is not None:
                                yield decode_event(event.text)
                                client.cursor = Cursor(event.event_id, course.epoch)
                            await self._run(partial(call_user, client.keeper.keep, client.cursor))
                except SESSION_ERRORS as error:
                    if self._closed.is_set() or course.over(error):
                        return
                    await self._sleep(course.wait_after(error))
        except CallbackError as theirs:
            raise theirs.error from None
        finally:
            self._course = None
            client.keeper.keep(client.cursor, now=True)

    async def acknowledge(self, event: models.Envelope) -> None:
        """Store `event` as processed now, for example before you leave the loop."""
        client = self._client
        epoch = self._course.epoch if self._course is not None else client.cursor.epoch
        client.cursor = Cursor(event.event_id, epoch)
        await self._run(partial(client.keeper.keep, client.cursor, now=True))

    async def _session(self, course: StreamState) -> AsyncGenerator[StreamEvent | None, None]:
        """One connection, until it ends with an error. Yields None if no event came in time."""
        endpoint = await self._run(self._client.target.locate)
        async with connect(socket_url(endpoint), **socket_options(endpoint)) as socket:
            self._socket = socket
            await socket.send(course.hello())
            try:
                async with asyncio.timeout(HELLO_TIMEOUT_SECONDS):
                    course.welcome(await socket.recv(decode=True))
            except TimeoutError:
                raise StreamBroken("the hub did not answer the hello frame") from None
            while not self._closed.is_set():
                try:
                    async with asyncio.timeout(CURSOR_SECONDS):
                        text = await socket.recv(decode=True)
                except TimeoutError:
                    yield None
                    continue
                event = course.take(text)
                if event is not None:
                    yield event

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closed.wait()

    async def _run(self, verb: Callable[[], T]) -> T:
        if self._closed.is_set():
            raise Invalid("this client is closed")
        return await asyncio.get_running_loop().run_in_executor(self._threads, verb)

    # -- verbs -----------------------------------------------------------------------

    create_channel = _run_in_thread(Client.create_channel)
    create_topic = _run_in_thread(Client.create_topic)
    rename_topic = _run_in_thread(Client.rename_topic)
    send_message = _run_in_thread(Client.send_message)
    send_messages = _run_in_thread(Client.send_messages)
    edit_message = _run_in_thread(Client.edit_message)
    delete_message = _run_in_thread(Client.delete_message)
    retopic_message = _run_in_thread(Client.retopic_message)
    add_attachment = _run_in_thread(Client.add_attachment)
    list_channels = _run_in_thread(Client.list_channels)
    list_topics = _run_in_thread(Client.list_topics)
    get_message = _run_in_thread(Client.get_message)
    tail_messages = _run_in_thread(Client.tail_messages)
    page_messages = _run_in_thread(Client.page_messages)
    list_attachments = _run_in_thread(Client.list_attachments)
    list_enrichments = _run_in_thread(Client.list_enrichments)
    search = _run_in_thread(Client.search)
    send = _run_in_thread(Client.send)
    send_status = _run_in_thread(Client.send_status)
    receive = _run_in_thread(Client.receive)
    ack = _run_in_thread(Client.ack)

    async def messages(self, topic_id: str) -> AsyncGenerator[models.Message, None]:
        """Like `Client.messages`."""
        rows = self._client.messages(topic_id)
        while (message := await self._run(partial(next, rows, None))) is not None:
            yield message
