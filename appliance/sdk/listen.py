"""The event stream of a hub over a WebSocket, resumed after every break.

Delivery is at least once; this side drops what it has seen, so a consumer gets rising
event ids, each once. Two things start the count over: the hub's newest event lies below
our cursor (another database), or its epoch changed (a backup was restored).

    connecting ──hello_ok──▶ following ──closed, broken──▶ waiting ──▶ connecting
        │                        └── 1000 ──▶ finished
        └── 4401 twice ──▶ Unauthenticated
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import msgspec
from websockets.exceptions import (
    ConnectionClosed,
    InvalidStatus,
    WebSocketException,
)
from websockets.sync.client import ClientConnection, connect

from appliance.kernel.errors import ApplianceError, Unauthenticated, Unavailable
from appliance.sdk.discovery import Endpoint, HubNotRunning, StaleServerFile

FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 30.0
GOING_AWAY_WAIT_SECONDS = 5.0
OPEN_TIMEOUT_SECONDS = 10.0
HELLO_TIMEOUT_SECONDS = 30.0
PING_SECONDS = 20.0
BEGINNINGS_MAX = 3
FRAME_BYTES_MAX = 4 * 1024 * 1024  # an edit carries old and new text, six bytes a character

NORMAL, GOING_AWAY, UNAUTHORIZED = 1000, 1001, 4401


class Frame(msgspec.Struct, frozen=True):
    """The few fields of a frame that steer us; the rest goes through untouched."""

    type: str = ""
    event_id: int = 0
    name: str = ""
    replay_until: int = 0
    instance_id: str = ""
    epoch: str = ""
    code: str = ""
    error: str = ""


class Event(msgspec.Struct, frozen=True):
    """One event: its number, its name, and the envelope as the hub sent it."""

    event_id: int
    name: str
    text: str

    def envelope(self) -> dict[str, Any]:
        return msgspec.json.decode(self.text, type=dict[str, Any])


class Subscription(msgspec.Struct, frozen=True):
    """What to hear: nothing named means everything."""

    channels: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()

    def wire(self) -> dict[str, list[str]] | None:
        if not self.channels and not self.topics:
            return None
        return {"channels": list(self.channels), "topics": list(self.topics)}


class StreamBroken(Unavailable):
    code = "STREAM_BROKEN"
    sentence = "the event stream broke"


class TokenRefused(Unauthenticated):
    sentence = "the hub refused the token for the event stream"


class _StartOver(Exception):
    """The cursor means nothing to this hub; connect again from the beginning, at once."""


_frame = msgspec.json.Decoder(Frame)


class Follower:
    """Follows one hub for ever. Not thread-safe.

    `after` and `epoch` are the cursor: what was handed out last. `say` gets a sentence
    whenever something happens to the connection; `pause` waits, so a test needn't.
    """

    def __init__(
        self,
        locate: Callable[[], Endpoint],
        subscription: Subscription | None = None,
        *,
        after: int = 0,
        epoch: str = "",
        say: Callable[[str], None] = lambda _: None,
        pause: Callable[[float], None] = time.sleep,
        insist: bool = False,
    ) -> None:
        self.after = after
        self.epoch = epoch
        self._locate = locate
        self._subscription = subscription or Subscription()
        self._say = say
        self._pause = pause
        self._connected_once = insist
        self._token_refusals = 0
        self._beginnings = 0  # in a row, without an event between
        self._wait_seconds = FIRST_WAIT_SECONDS

    def events(self, idle_seconds: float | None = None) -> Iterator[Event | None]:
        """Events for ever; None whenever nothing came for `idle_seconds`.

        The first connection must succeed (unless `insist`), later ones are tried for ever.
        """
        while True:
            minimum = 0.0
            try:
                yield from self._session(idle_seconds)
                return
            except _StartOver:
                if self._beginnings < BEGINNINGS_MAX:
                    continue
                reason = "the hub's history keeps changing"
            except ConnectionClosed as error:
                minimum = self._after_close(error)
                reason = f"connection closed ({_code(error)})"
            except InvalidStatus as error:
                self._after_status(error.response.status_code)
                reason = f"the hub answered {error.response.status_code}"
            except (HubNotRunning, StaleServerFile, StreamBroken) as error:
                reason = error.message
                if not self._connected_once:
                    raise
            except (OSError, WebSocketException) as error:
                reason = f"no connection: {type(error).__name__}"
                if not self._connected_once:
                    raise HubNotRunning(f"can't follow the hub: {type(error).__name__}") from None
            self._wait(reason, minimum)

    def _session(self, idle_seconds: float | None) -> Iterator[Event | None]:
        """One connection, from hello to its end. Returns when the hub says it is done."""
        with self._connect(self._locate()) as socket:
            self._hello(socket)
            self._connected_once = True
            self._token_refusals = 0
            try:
                while True:
                    try:
                        text = socket.recv(timeout=idle_seconds, decode=True)
                    except TimeoutError:
                        yield None
                        continue
                    event = self._take(text)
                    if event is not None:
                        self._beginnings = 0
                        self._wait_seconds = FIRST_WAIT_SECONDS
                        yield event
            except ConnectionClosed as error:
                if _code(error) != NORMAL:
                    raise
                self._say("the hub closed the stream for good")

    def _connect(self, endpoint: Endpoint) -> AbstractContextManager[ClientConnection]:
        scheme = "wss" if endpoint.secure else "ws"
        headers = {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {}
        return connect(
            f"{scheme}://{endpoint.authority}{endpoint.prefix}/ws",
            additional_headers=headers,
            open_timeout=OPEN_TIMEOUT_SECONDS,
            ping_interval=PING_SECONDS,
            ping_timeout=PING_SECONDS,
            close_timeout=1,
            max_size=FRAME_BYTES_MAX,
            compression=None,
            proxy=None,  # a hub is near; a proxy meant for the web must not see the token
            user_agent_header=None,
        )

    def _hello(self, socket: ClientConnection) -> None:
        hello: dict[str, Any] = {"type": "hello", "after_event_id": self.after}
        subscriptions = self._subscription.wire()
        if subscriptions is not None:
            hello["subscriptions"] = subscriptions
        if self.epoch:
            hello["epoch"] = self.epoch
        socket.send(msgspec.json.encode(hello).decode())
        try:
            answer = _decode(socket.recv(timeout=HELLO_TIMEOUT_SECONDS, decode=True))
        except TimeoutError:
            raise StreamBroken("the hub didn't answer hello") from None
        if answer.type == "error" and answer.code == "EPOCH_CHANGED":
            self._start_over(answer.epoch, "a backup was restored")
        if answer.type == "error":
            raise Rejected(f"the hub refused to stream: {answer.error or answer.code}")
        if answer.type != "hello_ok":
            raise StreamBroken("what answers is no hub: it sent no hello_ok")
        if self.epoch and answer.epoch and answer.epoch != self.epoch:
            self._start_over(answer.epoch, "a backup was restored")
        if answer.replay_until < self.after:
            newest = f"its newest event is {answer.replay_until}, ours is {self.after}"
            self._start_over(answer.epoch, newest)
        self.epoch = answer.epoch or self.epoch

    def _start_over(self, epoch: str, why: str) -> None:
        self._say(f"the hub's history changed ({why}): starting from the beginning")
        self.after = 0
        self.epoch = epoch
        self._beginnings += 1
        raise _StartOver

    def _take(self, text: str) -> Event | None:
        frame = _decode(text)
        if frame.type == "error":
            if frame.code == "EPOCH_CHANGED":
                self._start_over(frame.epoch, "a backup was restored")
            self._say(f"the hub says: {frame.error or frame.code}")
            return None
        if frame.type != "event" or frame.event_id <= self.after:
            return None  # an unknown type (to be ignored), or seen before
        self.after = frame.event_id
        return Event(frame.event_id, frame.name, text)

    def _after_close(self, error: ConnectionClosed) -> float:
        """Seconds to wait at least before connecting again."""
        code = _code(error)
        if code == UNAUTHORIZED:
            self._refused()
        return GOING_AWAY_WAIT_SECONDS if code == GOING_AWAY else 0.0

    def _after_status(self, status: int) -> None:
        if status in (401, 403):
            self._refused()
        elif not self._connected_once and status < 500:
            raise StreamBroken(f"the hub answered the upgrade with status {status}")

    def _refused(self) -> None:
        """Once may mean that the token was changed meanwhile: it is read again."""
        self._token_refusals += 1
        if self._token_refusals > 1:
            raise TokenRefused

    def _wait(self, reason: str, minimum: float) -> None:
        seconds = max(self._wait_seconds * random.uniform(0.75, 1.25), minimum)
        if self._token_refusals:
            seconds = 0.0
        self._wait_seconds = min(self._wait_seconds * 2, LONGEST_WAIT_SECONDS)
        self._say(f"{reason}; connecting again in {seconds:.1f} s")
        self._pause(seconds)


class Rejected(ApplianceError):
    """The hub refused the hello: asking again changes nothing."""

    kind = "invalid"
    code = "INVALID_INPUT"
    sentence = "the hub refused to stream"


def _decode(text: str) -> Frame:
    try:
        return _frame.decode(text)
    except msgspec.DecodeError:
        raise StreamBroken("the hub sent a frame that is no JSON object") from None


def _code(error: ConnectionClosed) -> int | None:
    return error.rcvd.code if error.rcvd is not None else None
