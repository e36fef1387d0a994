"""The client for asyncio: the same verbs to be awaited, events as an async iterator.

    async with AsyncAgentlipClient() as hub:
        await hub.send_message(topic_id, sender="me", content_raw="hello")
        async for event in hub.events():
            ...

The stream is asyncio's own. Verbs run in a few threads of the client's, on the same
kept-alive connections as the other client's; cancelling one stops waiting for it, while the
request itself may still be done.
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
from appliance.sdk.client import AgentlipClient, decoded
from appliance.sdk.cursor import CURSOR_SECONDS, Cursor
from appliance.sdk.stream_follower import (
    ENDINGS,
    HELLO_TIMEOUT_SECONDS,
    Course,
    Event,
    StreamBroken,
    Theirs,
    calling,
    socket_options,
    socket_url,
)

THREADS_MAX = 8
P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    verb: Callable[Concatenate[AgentlipClient, P], T],
) -> Callable[Concatenate["AsyncAgentlipClient", P], Awaitable[T]]:
    """The same verb, run in a thread."""

    async def call(self: "AsyncAgentlipClient", /, *args: P.args, **more: P.kwargs) -> T:
        return await self._run(partial(verb, self._client, *args, **more))

    call.__name__, call.__doc__ = verb.__name__, verb.__doc__
    return call


class AsyncAgentlipClient:
    """Takes what AgentlipClient takes. For one event loop."""

    def __init__(self, *args: Any, **more: Any) -> None:
        self._client = AgentlipClient(*args, **more)
        self._threads = ThreadPoolExecutor(THREADS_MAX, "agentlip")
        self._closed = asyncio.Event()
        self._socket: ClientConnection | None = None
        self._course: Course | None = None

    @property
    def cursor(self) -> Cursor:
        return self._client.cursor

    async def connect(self) -> Self:
        """Look that the hub is there and is the one meant; not needed before other calls."""
        await self._run(self._client.connect)
        return self

    async def close(self) -> None:
        """Ends `events` and everything that waits."""
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
        """As AgentlipClient.on; handlers are plain functions."""
        self._client.on(name, handler)

    # -- events ----------------------------------------------------------------------

    async def events(self) -> AsyncGenerator[models.Envelope, None]:
        """As AgentlipClient.events. Leave it by `close`, or close the iterator yourself."""
        if self._course is not None:
            raise Invalid("one client has one stream of events; make another client")
        client = self._client
        course = Course(
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
                                yield decoded(event.text)
                                client.cursor = Cursor(event.event_id, course.epoch)
                            await self._run(partial(calling, client.keeper.keep, client.cursor))
                except ENDINGS as error:
                    if self._closed.is_set() or course.over(error):
                        return
                    await self._pause(course.wait_after(error))
        except Theirs as theirs:
            raise theirs.error from None
        finally:
            self._course = None
            client.keeper.keep(client.cursor, now=True)

    async def acknowledge(self, event: models.Envelope) -> None:
        """Say that `event` is dealt with before asking for the next: before leaving the loop."""
        client = self._client
        epoch = self._course.epoch if self._course is not None else client.cursor.epoch
        client.cursor = Cursor(event.event_id, epoch)
        await self._run(partial(client.keeper.keep, client.cursor, now=True))

    async def _session(self, course: Course) -> AsyncGenerator[Event | None, None]:
        """One connection, from hello to its end, which is always an error; None when quiet."""
        endpoint = await self._run(self._client.target.locate)
        async with connect(socket_url(endpoint), **socket_options(endpoint)) as socket:
            self._socket = socket
            await socket.send(course.hello())
            try:
                async with asyncio.timeout(HELLO_TIMEOUT_SECONDS):
                    course.welcome(await socket.recv(decode=True))
            except TimeoutError:
                raise StreamBroken("the hub didn't answer hello") from None
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

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closed.wait()

    async def _run(self, verb: Callable[[], T]) -> T:
        if self._closed.is_set():
            raise Invalid("this client is closed")
        return await asyncio.get_running_loop().run_in_executor(self._threads, verb)

    # -- verbs -----------------------------------------------------------------------

    create_channel = _awaited(AgentlipClient.create_channel)
    create_topic = _awaited(AgentlipClient.create_topic)
    rename_topic = _awaited(AgentlipClient.rename_topic)
    send_message = _awaited(AgentlipClient.send_message)
    send_messages = _awaited(AgentlipClient.send_messages)
    edit_message = _awaited(AgentlipClient.edit_message)
    delete_message = _awaited(AgentlipClient.delete_message)
    retopic_message = _awaited(AgentlipClient.retopic_message)
    add_attachment = _awaited(AgentlipClient.add_attachment)
    list_channels = _awaited(AgentlipClient.list_channels)
    list_topics = _awaited(AgentlipClient.list_topics)
    tail_messages = _awaited(AgentlipClient.tail_messages)
    page_messages = _awaited(AgentlipClient.page_messages)
    list_attachments = _awaited(AgentlipClient.list_attachments)
    list_enrichments = _awaited(AgentlipClient.list_enrichments)
    search = _awaited(AgentlipClient.search)
