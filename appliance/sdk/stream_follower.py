"""The rules of following a hub's event stream, without any input or output.

`listen.py` and `aio.py` do the talking; what a frame, a close code or a failure means is
decided here, once.

    connecting ──hello_ok──▶ following ──closed, broken──▶ waiting ──▶ connecting
        │                        └── 1000 ──▶ finished
        └── 4401 twice ──▶ TokenRefused

Delivery is at least once; this side drops what it has seen, so a consumer gets rising
event ids, each once. Two things end the meaning of a cursor: the hub's newest event lies
below it (another database), or its epoch changed (a backup was restored). Then `restart`
says from which event on to go: 0 is from the beginning, `newest` skips what is there.
"""

import logging
import random
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from appliance.kernel.errors import ApplianceError, Unauthenticated, Unavailable
from appliance.sdk.discovery import Endpoint, HubNotRunning, StaleServerFile

T = TypeVar("T")

FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 30.0
GOING_AWAY_WAIT_SECONDS = 5.0
OPEN_TIMEOUT_SECONDS = 10.0
HELLO_TIMEOUT_SECONDS = 30.0
PING_SECONDS = 20.0
CLOSE_SECONDS = 1.0
BEGINNINGS_MAX = 3
FRAME_BYTES_MAX = 4 * 1024 * 1024  # an edit carries old and new text, six bytes a character
FRAMES_WAITING_MAX = 16  # received and not yet taken; then the hub is made to wait

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


class NewHistory(msgspec.Struct, frozen=True):
    """The cursor `after` means nothing to the hub any more. `newest` is its last event."""

    reason: str
    epoch: str
    newest: int
    after: int


class StreamBroken(Unavailable):
    code = "STREAM_BROKEN"
    sentence = "the event stream broke"
    advice = "agentlip status says whether the hub runs"


class TokenRefused(Unauthenticated):
    sentence = "the hub refused the token for the event stream"


class Rejected(ApplianceError):
    """The hub refused the hello: asking again changes nothing."""

    kind = "invalid"
    code = "INVALID_INPUT"
    sentence = "the hub refused to stream"
    advice = "look at the subscriptions and the cursor that were given"


class Theirs(Exception):
    """What a function of the caller's raised: no trouble of the connection, whatever it is."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class StartOver(Exception):
    """The cursor meant nothing to this hub; connect again with the new one."""


# What a connection ends with; the mendable ones are worth another one.
ENDINGS = (StartOver, WebSocketException, OSError, ApplianceError)
MENDABLE = (HubNotRunning, StaleServerFile, StreamBroken)
_frame = msgspec.json.Decoder(Frame)
# A connection that breaks is told to `Signals`; nobody wants its traceback on standard error.
_socket_log = logging.getLogger("appliance.sdk.socket")
_socket_log.addHandler(logging.NullHandler())


class Signals:
    """Who wants to hear what happens to the connection."""

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        self.say = say  # a sentence for people
        self.disconnected: list[Callable[[str], object]] = []  # why
        self.reconnected: list[Callable[[int], object]] = []  # the event after which it goes on
        self.failed: list[Callable[[Exception], object]] = []  # what the stream ends with


class Course:
    """One consumer's way through the log. `after` and `epoch` are the cursor."""

    def __init__(
        self,
        subscriptions: dict[str, list[str]] | None,
        *,
        after: int = 0,
        epoch: str = "",
        restart: Callable[[NewHistory], int] = lambda _: 0,
        signals: Signals | None = None,
        insist: bool = False,
    ) -> None:
        self.after = after
        self.epoch = epoch
        self.instance_id = ""
        self.signals = signals or Signals()
        self._subscriptions = subscriptions
        self._restart = restart
        self._following = False
        self._connected_once = insist
        self._connections = 0
        self._token_refusals = 0
        self._beginnings = 0  # in a row, without an event between
        self._wait_seconds = FIRST_WAIT_SECONDS

    def hello(self) -> str:
        hello: dict[str, Any] = {"type": "hello", "after_event_id": self.after}
        if self._subscriptions is not None:
            hello["subscriptions"] = self._subscriptions
        if self.epoch:
            hello["epoch"] = self.epoch
        return msgspec.json.encode(hello).decode()

    def welcome(self, text: str) -> None:
        """The hub's answer to hello; raises StartOver, Rejected or StreamBroken."""
        answer = _decode(text)
        if answer.type == "error" and answer.code == "EPOCH_CHANGED":
            self._begin_again(answer, "a backup was restored")
        if answer.type == "error":
            raise Rejected(f"the hub refused to stream: {answer.error or answer.code}")
        if answer.type != "hello_ok":
            raise StreamBroken("what answers is no hub: it sent no hello_ok")
        if self.epoch and answer.epoch and answer.epoch != self.epoch:
            self._begin_again(answer, "a backup was restored")
        if answer.replay_until < self.after:
            newest = f"its newest event is {answer.replay_until}, ours is {self.after}"
            self._begin_again(answer, newest)
        self.epoch = answer.epoch or self.epoch
        self.instance_id = answer.instance_id
        self._following = self._connected_once = True
        self._token_refusals = 0
        self._connections += 1
        if self._connections > 1:
            _tell(self.signals.reconnected, self.after)

    def take(self, text: str) -> Event | None:
        """The event in a frame; None for what is unknown or was seen before."""
        frame = _decode(text)
        if frame.type == "error":
            if frame.code == "EPOCH_CHANGED":
                self._begin_again(frame, "a backup was restored")
            self.signals.say(f"the hub says: {frame.error or frame.code}")
            return None
        if frame.type != "event" or frame.event_id <= self.after:
            return None
        self.after = frame.event_id
        self._beginnings = 0
        self._wait_seconds = FIRST_WAIT_SECONDS
        return Event(frame.event_id, frame.name, text)

    def over(self, error: Exception) -> bool:
        """Whether the hub said goodbye for good."""
        over = isinstance(error, ConnectionClosed) and _code(error) == NORMAL
        if over:
            self._lost("the hub closed the stream for good")
            self.signals.say("the hub closed the stream for good")
        return over

    def wait_after(self, error: Exception) -> float:
        """Seconds until the next connection; raises what no connection will mend."""
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
                reason = self._after_status(error.response.status_code)
            else:
                reason = self._after_failure(error)
        except ApplianceError as final:
            self._lost(final.message)
            _tell(self.signals.failed, final)
            raise
        self._lost(reason)
        seconds: float = max(self._wait_seconds * random.uniform(0.75, 1.25), minimum)
        if self._token_refusals:
            seconds = 0.0
        self._wait_seconds = min(self._wait_seconds * 2, LONGEST_WAIT_SECONDS)
        self.signals.say(f"{reason}; connecting again in {seconds:.1f} s")
        return seconds

    def _begin_again(self, frame: Frame, why: str) -> None:
        history = NewHistory(why, frame.epoch, frame.replay_until, self.after)
        self.after = max(0, calling(self._restart, history))
        self.epoch = frame.epoch
        self._beginnings += 1
        start = f"from event {self.after} on" if self.after else "starting from the beginning"
        self.signals.say(f"the hub's history changed ({why}): {start}")
        raise StartOver

    def _after_close(self, error: ConnectionClosed) -> tuple[str, float]:
        code = _code(error)
        if code == UNAUTHORIZED:
            self._refused()
        minimum = GOING_AWAY_WAIT_SECONDS if code == GOING_AWAY else 0.0
        return f"connection closed ({code})", minimum

    def _after_status(self, status: int) -> str:
        if status in (401, 403):
            self._refused()
        elif not self._connected_once and status < 500:
            raise StreamBroken(f"the hub answered the upgrade with status {status}")
        return f"the hub answered {status}"

    def _after_failure(self, error: Exception) -> str:
        if isinstance(error, ApplianceError):
            if not self._connected_once or not isinstance(error, MENDABLE):
                raise error
            return error.message
        if not self._connected_once:
            raise HubNotRunning(f"can't follow the hub: {type(error).__name__}") from None
        return f"no connection: {type(error).__name__}"

    def _refused(self) -> None:
        """Once may mean that the token was changed meanwhile: it is read again."""
        self._token_refusals += 1
        if self._token_refusals > 1:
            raise TokenRefused

    def _lost(self, reason: str) -> None:
        if self._following:
            self._following = False
            _tell(self.signals.disconnected, reason)


def socket_url(endpoint: Endpoint) -> str:
    return f"{'wss' if endpoint.secure else 'ws'}://{endpoint.authority}{endpoint.prefix}/ws"


def socket_options(endpoint: Endpoint) -> dict[str, Any]:
    """What both of `websockets`' clients are opened with."""
    headers = {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {}
    return {
        "additional_headers": headers,
        "open_timeout": OPEN_TIMEOUT_SECONDS,
        "ping_interval": PING_SECONDS,
        "ping_timeout": PING_SECONDS,
        "close_timeout": CLOSE_SECONDS,
        "max_size": FRAME_BYTES_MAX,
        "max_queue": FRAMES_WAITING_MAX,
        "compression": None,
        "proxy": None,  # a hub is near; a proxy meant for the web must not see the token
        "user_agent_header": None,
        "logger": _socket_log,
    }


def _tell(handlers: list[Callable[[Any], object]], fact: Any) -> None:
    for handler in handlers:
        calling(handler, fact)


def calling(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Calls what the caller gave; what that raises comes as `Theirs`."""
    try:
        return function(*arguments, **named)
    except Exception as error:
        raise Theirs(error) from error


def _decode(text: str) -> Frame:
    try:
        return _frame.decode(text)
    except msgspec.DecodeError:
        raise StreamBroken("the hub sent a frame that is no JSON object") from None


def _code(error: ConnectionClosed) -> int | None:
    return error.rcvd.code if error.rcvd is not None else None
