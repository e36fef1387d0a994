"""The event stream of a hub over a WebSocket, resumed after every break (see `course.py`)."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import msgspec
from websockets.sync.client import ClientConnection, connect

from appliance.sdk.discovery import Endpoint
from appliance.sdk.stream_follower import (
    ENDINGS,
    HELLO_TIMEOUT_SECONDS,
    Course,
    NewHistory,
    Signals,
    StartOver,
    StreamBroken,
    Theirs,
    socket_options,
    socket_url,
)
from appliance.sdk.stream_follower import Event as Event


class Subscription(msgspec.Struct, frozen=True):
    """What to hear: nothing named means everything."""

    channels: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()

    def wire(self) -> dict[str, list[str]] | None:
        if not self.channels and not self.topics:
            return None
        return {"channels": list(self.channels), "topics": list(self.topics)}


class Follower:
    """Follows one hub for ever. One consumer; only `stop` may be called from elsewhere.

    `pause` waits, so that a test needn't; `say` gets a sentence whenever something happens
    to the connection.
    """

    def __init__(
        self,
        locate: Callable[[], Endpoint],
        subscription: Subscription | dict[str, list[str]] | None = None,
        *,
        after: int = 0,
        epoch: str = "",
        restart: Callable[[NewHistory], int] = lambda _: 0,
        say: Callable[[str], None] = lambda _: None,
        signals: Signals | None = None,
        pause: Callable[[float], object] = time.sleep,
        insist: bool = False,
    ) -> None:
        wanted = subscription.wire() if isinstance(subscription, Subscription) else subscription
        self.course = Course(
            wanted,
            after=after,
            epoch=epoch,
            restart=restart,
            signals=signals or Signals(say),
            insist=insist,
        )
        self._locate = locate
        self._pause = pause
        self._socket: ClientConnection | None = None
        self._stopped = False

    @property
    def after(self) -> int:
        return self.course.after

    @property
    def epoch(self) -> str:
        return self.course.epoch

    def stop(self) -> None:
        """From any thread: `events` ends soon. A pause must be cut by whoever gave it."""
        self._stopped = True
        socket = self._socket
        if socket is not None:
            socket.close()

    def events(self, idle_seconds: float | None = None) -> Iterator[Event | None]:
        """Events for ever; None whenever nothing came for `idle_seconds`.

        The first connection must succeed (unless `insist`), later ones are tried for ever.
        """
        try:
            while not self._stopped:
                try:
                    yield from self._session(idle_seconds)
                except ENDINGS as error:
                    if self._stopped or self.course.over(error):
                        return
                    seconds = self.course.wait_after(error)
                    if not isinstance(error, StartOver) or seconds:
                        self._pause(seconds)
        except Theirs as theirs:
            raise theirs.error from None

    def _session(self, idle_seconds: float | None) -> Iterator[Event | None]:
        """One connection, from hello to its end, which is always an error."""
        with self._connect(self._locate()) as socket:
            self._socket = socket
            socket.send(self.course.hello())
            try:
                self.course.welcome(socket.recv(timeout=HELLO_TIMEOUT_SECONDS, decode=True))
            except TimeoutError:
                raise StreamBroken("the hub didn't answer hello") from None
            while not self._stopped:
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
