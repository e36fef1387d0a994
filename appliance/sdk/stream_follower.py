"""The event stream of a hub over a WebSocket, resumed after every break.

    connecting ──hello_ok──▶ following ──closed, broken──▶ waiting ──▶ connecting
        │                        └── 1000 ──▶ finished
        └── 4401 twice ──▶ TokenRefused

The hub delivers at least once; duplicates are dropped here, so a consumer gets increasing event
ids, each once. A cursor becomes invalid when the hub's newest event is below it (another database)
or the epoch changed (a backup was restored). Then `restart` returns the event to continue after:
0 starts from the beginning, `newest` skips all existing events.
"""

import logging
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from appliance.kernel.errors import ApplianceError, Unauthenticated, Unavailable
from appliance.kernel.retry import RetrySettings, delay_seconds
from appliance.sdk.discovery import Endpoint, HubNotRunning, StaleServerFile
from appliance.sdk.http import read_refusal

T = TypeVar("T")

RECONNECT = RetrySettings(initial_seconds=1.0, max_seconds=30.0)
GOING_AWAY_WAIT_SECONDS = 5.0
OPEN_TIMEOUT_SECONDS = 10.0
HELLO_TIMEOUT_SECONDS = 30.0
PING_SECONDS = 20.0
CLOSE_SECONDS = 1.0
BEGINNINGS_MAX = 3
FRAME_BYTES_MAX = 4 * 1024 * 1024  # an edit has old and new text, up to six bytes per character
FRAMES_WAITING_MAX = 16  # received but not processed; then backpressure slows the hub down

NORMAL, GOING_AWAY, UNAUTHORIZED = 1000, 1001, 4401


class StreamFrame(msgspec.Struct, frozen=True):
    """The frame fields that control the stream. The whole frame is passed on unchanged."""

    type: str = ""
    event_id: int = 0
    name: str = ""
    replay_until: int = 0
    epoch: str = ""
    code: str = ""
    error: str = ""


class StreamEvent(msgspec.Struct, frozen=True):
    """One event: id, name, and the envelope as text."""

    event_id: int
    name: str
    text: str

    def envelope(self) -> dict[str, Any]:
        return msgspec.json.decode(self.text, type=dict[str, Any])


class NewHistory(msgspec.Struct, frozen=True):
    """The cursor `after` is no longer valid. `newest` is the hub's last event."""

    reason: str
    epoch: str
    newest: int
    after: int


class StreamBroken(Unavailable):
    code = "STREAM_BROKEN"
    default_message = "the event stream broke"
    default_hint = "run agentlip status to check the hub"


class TokenRefused(Unauthenticated):
    default_message = "the hub refused the token for the event stream"


class Rejected(ApplianceError):
    """The hub rejected the hello frame. A retry does not help."""

    kind = "invalid"
    code = "INVALID_INPUT"
    default_message = "the hub rejected the subscription"
    default_hint = "check the subscriptions and the cursor"


class CallbackError(Exception):
    """Wraps a callback's exception, to distinguish it from connection errors."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class StartOver(Exception):
    """The cursor was invalid; reconnect with the new one."""


# The exceptions that end a connection; a retryable one opens another connection.
SESSION_ERRORS = (StartOver, WebSocketException, OSError, ApplianceError)
RETRYABLE = (HubNotRunning, StaleServerFile, StreamBroken)
_frame = msgspec.json.Decoder(StreamFrame)
# A broken connection is reported to `StreamCallbacks`, not as a traceback on standard error.
socket_log = logging.getLogger("appliance.sdk.socket")
socket_log.addHandler(logging.NullHandler())


class StreamCallbacks:
    """Callbacks for connection changes."""

    def __init__(self) -> None:
        self.disconnected: list[Callable[[str], object]] = []  # with the reason
        self.reconnected: list[Callable[[int], object]] = []  # with the event id to continue after
        self.failed: list[Callable[[Exception], object]] = []  # with the final exception


class Follower:
    """Follows one hub without end. One consumer; other threads may only call `stop`.

    `after` and `epoch` are the cursor. `say` gets a message for people when the state of the
    connection changes, and `sleep` waits between attempts.
    """

    def __init__(
        self,
        locate: Callable[[], Endpoint],
        subscriptions: dict[str, list[str]] | None = None,
        *,
        after: int = 0,
        epoch: str = "",
        restart: Callable[[NewHistory], int] = lambda _: 0,
        say: Callable[[str], None] = lambda _: None,
        signals: StreamCallbacks | None = None,
        sleep: Callable[[float], object] | None = None,
        insist: bool = False,
    ) -> None:
        self.after = after
        self.epoch = epoch
        self._locate = locate
        self._subscriptions = subscriptions
        self._restart = restart
        self._say = say
        self._signals = signals or StreamCallbacks()
        self._stopped = threading.Event()
        self._sleep = sleep or self._stopped.wait
        self._socket: Connection | None = None
        self._following = False
        self._was_connected = insist
        self._connections = 0
        self._token_refusals = 0
        self._beginnings = 0  # in a row, without an event between
        self._failures = 0  # in a row, without an event between

    def stop(self) -> None:
        """End `events` soon. Any thread may call it."""
        self._stopped.set()
        socket = self._socket
        if socket is not None:
            socket.close()

    def events(self, idle_seconds: float | None = None) -> Iterator[StreamEvent | None]:
        """Yield events, and None after each `idle_seconds` without one.

        Without `insist` the first connection must succeed. Later ones are retried without a
        limit.
        """
        try:
            while not self._stopped.is_set():
                try:
                    yield from self._session(idle_seconds)
                except SESSION_ERRORS as error:
                    if self._stopped.is_set() or self._is_over(error):
                        return
                    seconds = self._seconds_after(error)
                    if not isinstance(error, StartOver) or seconds:
                        self._sleep(seconds)
        except CallbackError as theirs:
            raise theirs.error from None

    def _session(self, idle_seconds: float | None) -> Iterator[StreamEvent | None]:
        """Follow over one connection, until it ends with an error."""
        with _connect(self._locate(), in_query=bool(self._token_refusals)) as socket:
            self._socket = socket
            socket.send(self._hello())
            try:
                self._handle_welcome(socket.recv(timeout=HELLO_TIMEOUT_SECONDS, decode=True))
            except TimeoutError:
                raise StreamBroken("the hub did not answer the hello frame") from None
            while not self._stopped.is_set():
                try:
                    text = socket.recv(timeout=idle_seconds, decode=True)
                except TimeoutError:
                    yield None
                    continue
                event = self._take(text)
                if event is not None:
                    yield event

    def _hello(self) -> str:
        hello: dict[str, Any] = {"type": "hello", "after_event_id": self.after}
        if self._subscriptions is not None:
            hello["subscriptions"] = self._subscriptions
        if self.epoch:
            hello["epoch"] = self.epoch
        return msgspec.json.encode(hello).decode()

    def _handle_welcome(self, text: str) -> None:
        """Process the response to hello. Raises StartOver, Rejected or StreamBroken."""
        answer = _decode(text)
        if answer.type == "error" and answer.code == "EPOCH_CHANGED":
            self._start_over(answer, "a backup was restored")
        if answer.type == "error":
            raise Rejected(f"the hub rejected the subscription: {answer.error or answer.code}")
        if answer.type != "hello_ok":
            raise StreamBroken("the server is not a hub: it sent no hello_ok")
        if self.epoch and answer.epoch and answer.epoch != self.epoch:
            self._start_over(answer, "a backup was restored")
        if answer.replay_until < self.after:
            newest = f"its newest event is {answer.replay_until}, the cursor is {self.after}"
            self._start_over(answer, newest)
        self.epoch = answer.epoch or self.epoch
        self._following = self._was_connected = True
        self._token_refusals = 0
        self._connections += 1
        if self._connections > 1:
            _notify(self._signals.reconnected, self.after)

    def _take(self, text: str) -> StreamEvent | None:
        """Return a frame's event; None for unknown frames and duplicates."""
        frame = _decode(text)
        if frame.type == "error":
            if frame.code == "EPOCH_CHANGED":
                self._start_over(frame, "a backup was restored")
            self._say(f"the hub reports: {frame.error or frame.code}")
            return None
        if frame.type != "event" or frame.event_id <= self.after:
            return None
        self.after = frame.event_id
        self._beginnings = 0
        self._failures = 0
        return StreamEvent(frame.event_id, frame.name, text)

    def _is_over(self, error: Exception) -> bool:
        """Return whether the hub closed the stream permanently."""
        over = isinstance(error, ConnectionClosed) and _code(error) == NORMAL
        if over:
            self._note_loss("the hub closed the stream permanently")
            self._say("the hub closed the stream permanently")
        return over

    def _seconds_after(self, error: Exception) -> float:
        """Return the seconds until the next attempt. Raises errors that a new connection cannot
        fix."""
        minimum = 0.0
        try:
            if isinstance(error, StartOver):
                self._following = False
                if self._beginnings < BEGINNINGS_MAX:
                    return 0.0
                reason = "the hub's history keeps changing"
            elif isinstance(error, ConnectionClosed):
                reason, minimum = self._after_close(error)
            elif isinstance(error, InvalidStatus):
                reason = self._after_status(error.response.status_code, error.response.body)
            else:
                reason = self._after_failure(error)
        except ApplianceError as final:
            self._note_loss(final.message)
            _notify(self._signals.failed, final)
            raise
        self._note_loss(reason)
        self._failures += 1
        seconds = max(delay_seconds(RECONNECT, self._failures, random.random()), minimum)
        if self._token_refusals:
            seconds = 0.0
        self._say(f"{reason}; reconnecting in {seconds:.1f} s")
        return seconds

    def _start_over(self, frame: StreamFrame, why: str) -> None:
        history = NewHistory(why, frame.epoch, frame.replay_until, self.after)
        self.after = max(0, _call_user(self._restart, history))
        self.epoch = frame.epoch
        self._beginnings += 1
        start = (
            f"continuing after event {self.after}" if self.after else "starting from the beginning"
        )
        self._say(f"the hub's history changed ({why}): {start}")
        raise StartOver

    def _after_close(self, error: ConnectionClosed) -> tuple[str, float]:
        code = _code(error)
        if code == UNAUTHORIZED:
            self._count_refusal()
        minimum = GOING_AWAY_WAIT_SECONDS if code == GOING_AWAY else 0.0
        return f"connection closed ({code})", minimum

    def _after_status(self, status: int, body: bytes | bytearray | None) -> str:
        if status in (401, 403):
            self._count_refusal()
        elif not self._was_connected and status < 500:
            message, hint = read_refusal(status, body)
            raise StreamBroken(message, hint=hint)
        return f"the hub answered {status}"

    def _after_failure(self, error: Exception) -> str:
        if isinstance(error, ApplianceError):
            if not self._was_connected or not isinstance(error, RETRYABLE):
                raise error
            return error.message
        if not self._was_connected:
            raise HubNotRunning(f"cannot follow the hub: {type(error).__name__}") from None
        return f"cannot connect: {type(error).__name__}"

    def _count_refusal(self) -> None:
        """Count a rejected token. The first time, the token is read again after a possible
        rotation, and sent to this machine in the query too, the only place where some hubs look."""
        self._token_refusals += 1
        if self._token_refusals > 1:
            raise TokenRefused

    def _note_loss(self, reason: str) -> None:
        if self._following:
            self._following = False
            _notify(self._signals.disconnected, reason)


def _connect(endpoint: Endpoint, *, in_query: bool) -> AbstractContextManager[Connection]:
    query, here = "", endpoint.host in ("127.0.0.1", "localhost", "::1")
    if in_query and endpoint.token and here:  # proxies' logs would keep the token
        query = f"?token={quote(endpoint.token, safe='')}"
    socket: Connection = connect(
        f"{'wss' if endpoint.secure else 'ws'}://{endpoint.authority}{endpoint.prefix}/ws{query}",
        additional_headers={"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {},
        open_timeout=OPEN_TIMEOUT_SECONDS,
        ping_interval=PING_SECONDS,
        ping_timeout=PING_SECONDS,
        close_timeout=CLOSE_SECONDS,
        max_size=FRAME_BYTES_MAX,
        max_queue=FRAMES_WAITING_MAX,
        compression=None,
        proxy=None,  # a proxy for the web must not see the token
        user_agent_header=None,
        logger=socket_log,
    )
    return socket


def _notify(handlers: list[Callable[[Any], object]], fact: Any) -> None:
    for handler in handlers:
        _call_user(handler, fact)


def _call_user(function: Callable[[Any], T], argument: Any) -> T:
    """Call a callback and wrap its exceptions in `CallbackError`."""
    try:
        return function(argument)
    except Exception as error:
        raise CallbackError(error) from error


def _decode(text: str) -> StreamFrame:
    try:
        return _frame.decode(text)
    except msgspec.DecodeError:
        raise StreamBroken("the hub sent a frame that is not a JSON object") from None


def _code(error: ConnectionClosed) -> int | None:
    return error.rcvd.code if error.rcvd is not None else None
