"""A WebSocket on a raw socket: reads frames, writes whole buffers, keeps the limits.

The protocol is `websockets`' sans-I/O one (RFC 6455): it takes bytes and gives frames.
Frames to the client are encoded here, because the same bytes go to many sockets.

Only the greenlet that calls `run` waits to write. Others leave bytes with `post`: what the
kernel takes at once is gone at once, for the rest that greenlet is woken.
A client that takes nothing for `stall_seconds_max` is closed with 1008.
"""

import contextlib
from collections import deque
from collections.abc import Callable
from socket import SHUT_RDWR
from typing import Any

import gevent
import msgspec
from gevent.event import Event
from websockets.datastructures import Headers
from websockets.exceptions import ProtocolError
from websockets.http11 import Request
from websockets.protocol import Protocol, Side, State
from websockets.server import ServerProtocol

from appliance.kernel.clock import Clock
from appliance.kernel.errors import (
    ApplianceError,
    Exhausted,
    Forbidden,
    Invalid,
    Missing,
    Unauthenticated,
    Unavailable,
)
from appliance.kernel.metrics import counter, gauge
from appliance.web.incoming import FrameFlood, FrameQuota, Incoming
from appliance.web.unsent import UnsentBudget

GOING_AWAY = 1001
POLICY_VIOLATION = 1008
TOO_BIG = 1009
INTERNAL_ERROR = 1011
UNAUTHORIZED = 4401
REASON_BYTES_MAX = 123  # RFC 6455 §5.5, less the code

CLOSE_CODES: tuple[tuple[type[ApplianceError], int], ...] = (
    (Unauthenticated, UNAUTHORIZED),
    (Forbidden, UNAUTHORIZED),
    (Unavailable, GOING_AWAY),
    (Exhausted, POLICY_VIOLATION),
    (Invalid, POLICY_VIOLATION),
    (Missing, POLICY_VIOLATION),
)

_open = gauge("socket_open", "WebSockets open")
_closed = counter("socket_closed_total", "WebSockets closed", ("code",))
_limited = counter(
    "socket_limited_total", "WebSockets closed with 1008, by the limit they exceeded", ("limit",)
)
_sent_bytes = counter("socket_sent_bytes_total", "Bytes written to WebSockets")


COUNTED_BYTES = 64 * 1024
RECEIVE_BYTES = 64 * 1024
TURN_FRAMES = 64  # read from one client, or answered to it, before others are served
CHUNK_FRAMES = 4  # what a chunk of received bytes counts as, beside its messages
DISCARD_BYTES_MAX = 1024 * 1024  # read and dropped while a closed client goes on sending


class SocketSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[socket]: limits of every WebSocket."""

    connections_max: int = 100  # hub spec §0.1.2; more are refused with 503
    unauthenticated_max: int = 16  # unauthenticated broker links; the oldest is closed
    frame_bytes_max: int = 256 * 1024  # from a client; 1009 above
    request_bytes_max: int = 512 * 1024  # a `request` frame: a legal message, escaped
    ping_seconds: float = 20.0  # silence after which the client is pinged
    idle_seconds_max: float = 60.0  # silence after which it is gone
    stall_seconds_max: float = 5.0  # a client that reads nothing for longer: 1008
    hello_seconds_max: float = 10.0  # time for the first frame
    close_seconds_max: float = 2.0  # time for the last bytes and the answer to a close
    queue_max: int = 1000  # live events waiting for one client before it lags
    posted_bytes_max: int = 4 * 1024 * 1024  # answers waiting for one client; 1008 above
    control_frames_per_second: int = 20  # pings, pongs, fragments under 1 KiB; 1008 above
    control_frames_burst: int = 100  # such frames at once; a tenth before a broker link's hello
    fragments_max: int = 1000  # fragments of one message; 1008 above
    hello_bytes_max: int = 16 * 1024  # size of a frame before a broker link's hello; 1009 above


class SocketGone(Exception):
    """The connection ended; `code` is what the other side said, or 1006."""

    def __init__(self, code: int = 1006) -> None:
        self.code = code
        super().__init__(code)


class Stalled(Exception):
    """The client takes no bytes."""


def fitting(reason: str) -> str:
    """As much of `reason` as a close frame holds; bytes count, not characters."""
    return reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore")


def close_code(error: BaseException) -> int:
    for kind, code in CLOSE_CODES:
        if isinstance(error, kind):
            return code
    return INTERNAL_ERROR


def is_upgrade(environ: dict[str, Any]) -> bool:
    return "websocket" in environ.get("HTTP_UPGRADE", "").lower()


def handshake(environ: dict[str, Any], subprotocol: str | None) -> bytes:
    """The 101 response to an upgrade request; raises Invalid when it isn't one."""
    if environ["REQUEST_METHOD"] != "GET":  # the library would take any
        raise Invalid("a WebSocket is opened by GET")
    headers = Headers(
        [
            (name[5:].replace("_", "-").title(), value)
            for name, value in environ.items()
            if name.startswith("HTTP_") and name not in NOT_NEGOTIATED
        ]
    )
    response = ServerProtocol().accept(Request("/", headers))
    if subprotocol is not None:
        response.headers["Sec-WebSocket-Protocol"] = subprotocol
    if response.status_code != 101:
        raise Invalid(
            "not a WebSocket handshake",
            details={"reason": "upgrade refused"},
            hint="see RFC 6455 §4.1; most clients do this for you",
        )
    return response.serialize()


class Socket:
    """An open WebSocket. One greenlet runs `run`; one more, made here, reads."""

    identified = False
    """The server knows who is at the other end. Until then it counts as unauthenticated."""

    def __init__(
        self,
        raw: Any,
        settings: SocketSettings,
        clock: Clock,
        leftover: bytes = b"",
        budget: UnsentBudget | None = None,
    ) -> None:
        self._raw = raw
        self._settings = settings
        self._clock = clock
        self._leftover = leftover
        self._protocol = Protocol(
            Side.SERVER, state=State.OPEN, max_size=settings.request_bytes_max
        )
        self._quota = FrameQuota(
            settings.control_frames_per_second, settings.control_frames_burst, clock.monotonic()
        )
        self._incoming = Incoming(self._protocol, self._quota, settings.fragments_max)
        self._posted: deque[bytes] = deque()
        self._posted_bytes = 0
        self._pong: bytes | None = None
        self._turn = 0  # frames read since other greenlets last ran
        self._heard = clock.monotonic()
        self._pinged = self._heard
        self._closing: tuple[int, str] | None = None
        self._ended: int | None = None
        self._wake: Callable[[], None] = lambda: None
        self._drained = Event()
        self._tail = b""  # what is left of frames whose beginning is out
        self._sending = False  # somebody waits for room in the middle of a write
        self._plain = getattr(raw, "_sock", raw)  # gevent's socket without the waiting
        self._sent = 0
        self._writing = 0  # bytes of the write that waits for the client
        budget = budget or UnsentBudget(1 << 62, clock)
        self._unsent = budget.share("socket", self._cut_off)

    # -- what the session uses ----------------------------------------------------

    def run(
        self,
        on_messages: Callable[[list[bytes]], None],
        wake: Callable[[], None],
        body: Callable[[], None],
        settle: Callable[[], None] = lambda: None,
    ) -> int:
        """Serve until the end: `body` in this greenlet, `on_messages` in the reading one.

        `wake` must make a `body` that waits return to `flush`. `settle` waits for what
        `on_messages` has begun, for a peer that says goodbye behind its last request.
        Answers the close code.
        """
        self._wake = wake
        reader = gevent.spawn(self._read, on_messages, settle)
        _open.inc()
        try:
            body()
        except SocketGone:
            pass
        except Stalled:
            self._limit("stall", "the client reads too slowly")
        except ApplianceError as error:
            self.close(close_code(error), error.message)
        except BaseException:
            self.close(INTERNAL_ERROR, "internal error")
            raise
        finally:
            _open.dec()
            reader.kill()
            code = self.end()
        return code

    def restrict(self) -> None:
        """Nobody knows yet who the client is: tighter limits hold until `identify`."""
        quota = FrameQuota(
            self._settings.control_frames_per_second,
            max(1, self._settings.control_frames_burst / 10),
            self._clock.monotonic(),
        )
        self._incoming.limit(self._settings.hello_bytes_max, quota)

    def identify(self) -> None:
        """The client has said who it is: the usual limits hold from its next frame on."""
        self.identified = True
        self._incoming.limit(self._settings.request_bytes_max, self._quota)

    def answer(self, frames: bytes) -> None:
        """From a greenlet that may wait: `post`, as soon as there is room."""
        self._count_turn(1)
        if self.is_closing or self.has_room(self._settings.stall_seconds_max):
            self.post(frames)
        else:
            self._limit("posted_bytes", "answers are not being read")

    def post(self, frames: bytes) -> None:
        """From any greenlet: write `frames` now, or have them written by the one that writes.

        Never waits. A client that leaves more than `posted_bytes_max` waiting is closed with
        1008. What comes after the end was decided is dropped.
        """
        if self.is_free():
            frames = self._try(frames)
            if not frames:
                return
        if self.is_closing:
            return
        if self._posted_bytes >= self._settings.posted_bytes_max:
            self._limit("posted_bytes", "answers are not being read")
            return
        self._posted.append(frames)
        self._posted_bytes += len(frames)
        self._hold()
        self._wake()

    def _hold(self) -> None:
        self._unsent.hold(self._posted_bytes + self._writing)

    def _cut_off(self) -> None:
        """All clients together keep too many bytes waiting, and this one the most."""
        self._limit("unsent_bytes", "too many bytes wait for this client")
        with contextlib.suppress(OSError):
            self._plain.shutdown(SHUT_RDWR)  # the writing greenlet may wait in the middle

    def is_free(self) -> bool:
        """Nothing waits to be written, and nothing has ended: what is posted now goes at once."""
        return not (self._posted or self._sending or self._tail or self.is_closing)

    @property
    def is_closing(self) -> bool:
        """The end was decided, by us or by the client."""
        return self._closing is not None or self._ended is not None

    def _try(self, frames: bytes) -> bytes:
        """Write what the kernel takes at once; what of `frames` is still to be posted."""
        try:
            sent = self._plain.send(frames)
        except OSError:  # full, or gone: the one that writes finds out
            return frames
        self._count(sent)
        if sent < len(frames):
            self._tail = frames[sent:]
            self._posted_bytes += len(self._tail)
            self._hold()
            self._wake()
        return b""

    def wake_with(self, wake: Callable[[], None]) -> None:
        """From now on, wake the writing greenlet this way."""
        self._wake = wake

    def has_room(self, timeout_seconds: float) -> bool:
        """Waits until posted bytes are below their limit; False when they stay above."""
        if self._posted_bytes < self._settings.posted_bytes_max:
            return True
        self._drained.clear()
        return bool(self._drained.wait(timeout_seconds))

    def close(self, code: int, reason: str = "") -> None:
        """From any greenlet: end this socket with `code`. The first call counts."""
        if self._closing is None:
            self._closing = (code, reason)
            self._wake()

    def _limit(self, limit: str, reason: str) -> None:
        """End this socket because its client exceeded a limit."""
        if self._closing is None:
            _limited.labels(limit).inc()
        self.close(POLICY_VIOLATION, reason)

    def flush(self) -> None:
        """Write what was posted, ping when it is time; raises SocketGone at the end."""
        if self._pong is not None:
            self._posted.append(self._pong)
            self._pong = None
        if self._posted or self._tail:
            frames = b"".join(self._posted)
            self._posted.clear()
            self._posted_bytes = 0
            self._drained.set()
            self.send(frames)
        if self.is_closing:
            raise SocketGone(self._ended or 1006)
        now = self._clock.monotonic()
        if now - self._heard > self._settings.idle_seconds_max:
            self.close(INTERNAL_ERROR, "no sign of life")
        elif now - max(self._heard, self._pinged) > self._settings.ping_seconds:
            self._pinged = now
            self.send(b"\x89\x00")

    def send(self, frames: bytes) -> None:
        """Write all of `frames`; raises Stalled or SocketGone."""
        if self._tail:
            frames = self._tail + frames
            self._tail = b""
        view = memoryview(frames)
        try:
            # Mostly the kernel takes all of it at once, and no time-out need be set up.
            view = view[self._plain.send(view) :]
        except BlockingIOError:
            pass
        except OSError:
            self._ended = self._ended or 1006
            raise SocketGone from None
        if view:
            self._wait_and_send(view)
        if self._unsent.size:
            self._hold()
        self._count(len(frames))

    def _wait_and_send(self, view: memoryview) -> None:
        self._sending = True
        while view:
            self._writing = len(view)
            self._hold()
            try:
                with gevent.Timeout(self._settings.stall_seconds_max, Stalled):
                    sent = self._raw.send(view)
            except OSError:
                self._ended = self._ended or 1006
                raise SocketGone from None
            except Stalled:
                self._tail = bytes(view)
                raise
            view = view[sent:]
        self._writing = 0
        self._sending = False

    def _count(self, size: int) -> None:
        """Counted in pieces: a metric costs as much as a small write."""
        self._sent += size
        if self._sent > COUNTED_BYTES:
            _sent_bytes.inc(self._sent)
            self._sent = 0

    # -- the end --------------------------------------------------------------------

    def end(self) -> int:
        """The close frame, behind whatever frame a stall has cut; then the socket's end.

        `run` does this; call it for a socket that is never run. Answers the close code.
        """
        code, reason = self._closing or (1000, "")
        if self._ended is None or self._ended != 1006:
            with (
                contextlib.suppress(OSError, ProtocolError),
                gevent.Timeout(self._settings.close_seconds_max, False),
            ):
                if self._protocol.state is State.OPEN:
                    self._protocol.send_close(code, fitting(reason))
                # A cut frame is finished first: else the close frame would be part of it.
                self._raw.sendall(self._tail + b"".join(self._protocol.data_to_send()))
                self._raw.shutdown(1)
                self._discard()
        _sent_bytes.inc(self._sent)
        self._sent = 0
        self._unsent.hold(0)
        with contextlib.suppress(OSError):
            self._raw.close()
        code = code if self._closing is not None else (self._ended or 1000)
        _closed.labels(str(code) if code in KNOWN_CODES else "other").inc()
        return code

    def _discard(self) -> None:
        """Read what still comes, within limits: our close frame must not be lost in a reset."""
        left = DISCARD_BYTES_MAX
        while left > 0 and (data := self._raw.recv(RECEIVE_BYTES)):
            left -= len(data)
            gevent.sleep(0)  # bytes that are always there would never let others run

    # -- the reading greenlet ---------------------------------------------------------

    def _read(self, on_messages: Callable[[list[bytes]], None], settle: Callable[[], None]) -> None:
        try:
            data = self._leftover or self._raw.recv(RECEIVE_BYTES)
            while data:
                self._heard = self._clock.monotonic()
                self._incoming.refill(self._heard)
                if self._take(data, on_messages, settle):
                    return
                data = self._raw.recv(RECEIVE_BYTES)
            self._ended = self._ended or 1006
        except OSError:
            self._ended = self._ended or 1006
        except FrameFlood as flood:
            self._limit(flood.limit, flood.message)
        except ApplianceError as error:
            self.close(close_code(error), error.message)
        except Exception:
            self.close(INTERNAL_ERROR, "internal error")
            raise
        finally:
            self._wake()

    def _take(
        self,
        data: bytes,
        on_messages: Callable[[list[bytes]], None],
        settle: Callable[[], None],
    ) -> bool:
        """Hand on the messages in `data`, answer its pings; True when this was the end."""
        incoming, more = self._incoming, True
        while more:
            messages = incoming.take(data)
            data, more = b"", incoming.has_more
            if messages and self._closing is None:  # also those said before a goodbye
                on_messages(messages)
            if incoming.over:
                settle()
                self._end_by_protocol(b"".join(self._protocol.data_to_send()))
                return True
            pong = incoming.take_pong()
            if pong is not None:
                self._send_pong(pong)
            if self.is_closing:
                return True
            self._count_turn(CHUNK_FRAMES + len(messages))
        return False

    def _count_turn(self, frames: int) -> None:
        """Let others run now and then. gevent does so only when a read or write has to wait,
        and a client that never lets it wait would be the only one served."""
        self._turn += frames
        if self._turn >= TURN_FRAMES:
            self._turn = 0
            gevent.sleep(0)

    def _send_pong(self, pong: bytes) -> None:
        """Now, or with what is written next; a newer one takes the place of one that waits."""
        if self.is_free():
            pong = self._try(pong)
        if pong:
            self._pong = pong
            self._wake()

    def _end_by_protocol(self, answer: bytes) -> None:
        """The peer said goodbye, or broke the protocol: the library chose the answer."""
        if self.is_free():
            answer = self._try(answer)
        if answer:  # also behind the frame for which we have closed already
            self._posted.append(answer)
        received = self._protocol.close_rcvd
        sent = self._protocol.close_sent
        self._ended = int(received.code) if received else int(sent.code) if sent else 1006


# We compress nothing, and choose the subprotocol ourselves (it may carry a token).
NOT_NEGOTIATED = ("HTTP_SEC_WEBSOCKET_EXTENSIONS", "HTTP_SEC_WEBSOCKET_PROTOCOL")
KNOWN_CODES = frozenset(
    {1000, 1001, 1002, 1006, 1007, 1008, 1009, 1011, 4003, 4004, 4010, 4011, 4012, 4401}
)
