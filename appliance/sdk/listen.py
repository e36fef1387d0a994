"""The event stream of a hub over a WebSocket, resumed after every break.

`stream_follower.py` has the rules.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import msgspec
from websockets.sync.client import ClientConnection, connect

from appliance.sdk.discovery import Endpoint
from appliance.sdk.stream_follower import (
    HELLO_TIMEOUT_SECONDS,
    SESSION_ERRORS,
    CallbackError,
    NewHistory,
    StartOver,
    StreamBroken,
    StreamCallbacks,
    StreamState,
    socket_options,
    socket_url,
)
from appliance.sdk.stream_follower import StreamEvent as StreamEvent


class EventSubscription(msgspec.Struct, frozen=True):
    """The channels and topics to receive; empty means all."""

    channels: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()

    def wire(self) -> dict[str, list[str]] | None:
        if not self.channels and not self.topics:
            return None
        return {"channels": list(self.channels), "topics": list(self.topics)}


class Follower:
    """Follows one hub without end. One consumer; other threads may only call `stop`.

    `sleep` waits between attempts; `say` gets a message when the state of the connection
    changes.
    """

    def __init__(
        self,
        locate: Callable[[], Endpoint],
        subscription: EventSubscription | dict[str, list[str]] | None = None,
        *,
        after: int = 0,
        epoch: str = "",
        restart: Callable[[NewHistory], int] = lambda _: 0,
        say: Callable[[str], None] = lambda _: None,
        signals: StreamCallbacks | None = None,
        sleep: Callable[[float], object] | None = None,
        insist: bool = False,
    ) -> None:
        wanted = (
            subscription.wire() if isinstance(subscription, EventSubscription) else subscription
        )
        self.course = StreamState(
            wanted,
            after=after,
            epoch=epoch,
            restart=restart,
            signals=signals or StreamCallbacks(say),
            insist=insist,
        )
        self._locate = locate
        self._stopped = threading.Event()
        self._sleep = sleep or self._stopped.wait
        self._socket: ClientConnection | None = None

    @property
    def after(self) -> int:
        return self.course.after

    @property
    def epoch(self) -> str:
        return self.course.epoch

    def stop(self) -> None:
        """End `events` soon. Any thread may call it."""
        self._stopped.set()
        socket = self._socket
        if socket is not None:
            socket.close()

    def events(self, idle_seconds: float | None = None) -> Iterator[StreamEvent | None]:
        """Events, and None when none came for `idle_seconds`.

        Without `insist` the first connection must succeed. Later ones are retried without a
        limit.
        """
        try:
            while not self._stopped.is_set():
                try:
                    yield from self._session(idle_seconds)
                except SESSION_ERRORS as error:
                    if self._stopped.is_set() or self.course.over(error):
                        return
                    seconds = self.course.wait_after(error)
                    if not isinstance(error, StartOver) or seconds:
                        self._sleep(seconds)
        except CallbackError as theirs:
            raise theirs.error from None

    def _session(self, idle_seconds: float | None) -> Iterator[StreamEvent | None]:
        """One connection, until it ends with an error."""
        with self._connect(self._locate()) as socket:
            self._socket = socket
            socket.send(self.course.hello())
            try:
                self.course.welcome(socket.recv(timeout=HELLO_TIMEOUT_SECONDS, decode=True))
            except TimeoutError:
                raise StreamBroken("the hub did not answer the hello frame") from None
            while not self._stopped.is_set():
                try:
                    text = socket.recv(timeout=idle_seconds, decode=True)
                except TimeoutError:
                    yield None
                    continue
                event = self.course.take(text)
                if event is not None:
                    yield event

    def _connect(self, endpoint: Endpoint) -> AbstractContextManager[ClientConnection]:
        socket: ClientConnection = connect(socket_url(endpoint), **socket_options(endpoint))
        return socket
