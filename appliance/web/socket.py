"""A WebSocket on a raw socket: reads frames, writes buffers, and enforces limits.

`incoming.py` turns the client's bytes into messages. Frames to the client arrive encoded, because
the same bytes go to many sockets.

Only the greenlet that calls `run` waits to write. Other greenlets call `post`: the kernel takes
what it can at once, and the writing greenlet is woken for the rest.
A client that reads nothing for STALL_SECONDS_MAX is closed with 1008.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import copy_context
from socket import SHUT_RDWR
from typing import Any

import gevent
import msgspec
from gevent.event import Event

from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError, OutOfMemory
from appliance.kernel.metrics import counter, gauge
from appliance.kernel.token_bucket import TokenBucket
from appliance.kernel.turns import serve_others
from appliance.web.frame import close_frame
from appliance.web.incoming import Incoming
from appliance.web.unsent import Unsent, UnsentBudget

GOING_AWAY = 1001
POLICY_VIOLATION = 1008
TOO_BIG = 1009
INTERNAL_ERROR = 1011
UNAUTHORIZED = 4401

CLOSE_CODES = {
    "unauthenticated": UNAUTHORIZED, "forbidden": UNAUTHORIZED, "unavailable": GOING_AWAY,
    "exhausted": POLICY_VIOLATION, "invalid": POLICY_VIOLATION, "missing": POLICY_VIOLATION,
}  # fmt: skip
"""Close codes by error kind."""

_open = gauge("socket_open", "Open WebSockets")
_closed = counter("socket_closed_total", "WebSockets closed, by close code", ("code",))

RECEIVE_BYTES = 64 * 1024
YIELD_FRAMES = 64  # one client's frames before other greenlets run
CHUNK_FRAMES = 4  # cost of one received chunk, beside its messages
FRAME_BYTES = 1024  # message bytes that cost one frame more
REQUEST_BYTES_MAX = 512 * 1024  # for a `request` frame, as for a body over HTTP
HELLO_BYTES_MAX = 16 * 1024  # before a broker link's hello
HELLO_SECONDS_MAX = 10.0  # to the first frame
PING_SECONDS = 20.0  # without a frame, then the client is pinged
IDLE_SECONDS_MAX = 60.0  # without a frame, then the client is disconnected
STALL_SECONDS_MAX = 5.0  # for which a client may read nothing
CLOSE_SECONDS_MAX = 2.0  # for the last bytes and the client's close frame
POSTED_BYTES_MAX = 4 * 1024 * 1024  # replies that a client has not read
CONTROL_FRAMES_PER_SECOND = 20  # pings, pongs and fragments under 1 KiB
CONTROL_FRAMES_BURST = 100  # a tenth before a broker link's hello
UNREAD = "the client does not read replies"
DISCARD_BYTES_MAX = 1024 * 1024  # read and dropped while a closed client goes on sending


class SocketSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[socket]: every WebSocket's limits."""

    connections_max: int = 100
    """WebSockets with a token, without courier consumers; 503 above (hub spec §0.1.2)"""


class SocketGone(Exception):
    """The connection ended. `code`: the client's close code, or 1006."""

    def __init__(self, code: int = 1006) -> None:
        self.code = code
        super().__init__(code)


class Stalled(Exception):
    """The client does not read."""


def close_code(error: ApplianceError) -> int:
    return CLOSE_CODES.get(error.kind, INTERNAL_ERROR)


class Socket:
    """An open WebSocket. One greenlet calls `run`, which starts another one that reads."""

    identified = False
    """Whether the client is authenticated. A broker link's is after its first frame."""

    consumes = False
    """Whether it counts against `http.consumers_max`, and not `socket.connections_max`."""

    wait_seconds = PING_SECONDS / 4
    """How long `body` may wait before it calls `flush`, which pings."""

    def __init__(
        self,
        raw: Any,
        clock: Clock,
        leftover: bytes = b"",
        budget: UnsentBudget | None = None,
        frame_bytes_max: int = REQUEST_BYTES_MAX,
    ) -> None:
        self._raw = raw
        self._clock = clock
        self._leftover = leftover
        self._frame_bytes_max = frame_bytes_max
        self._quota = TokenBucket(
            CONTROL_FRAMES_PER_SECOND, CONTROL_FRAMES_BURST, clock.monotonic()
        )
        self._incoming = Incoming(frame_bytes_max, self._quota, clock)
        self._posted: deque[bytes] = deque()
        self._posted_bytes = 0
        self._pong: bytes | None = None
        self._frames_since_yield = 0  # frames read since other greenlets last ran
        self._received_at = clock.monotonic()
        self._pinged = self._received_at
        self._closing: tuple[int, str] | None = None
        self._ended: int | None = None
        self._wake: Callable[[], None] = lambda: None
        self._drained = Event()
        self._tail = b""  # the rest of partly sent frames
        self._sending = False  # a write is waiting for the client
        # The plain socket inside gevent's, which doesn't wait.
        self._plain = getattr(raw, "_sock", raw)
        self._writing = 0  # the bytes in the write that waits for the client
        budget = budget or UnsentBudget(1 << 62, clock)
        self._unsent = Unsent(budget, "socket", self._cut_off)

    # -- what the session uses ----------------------------------------------------

    def run(
        self,
        on_messages: Callable[[list[bytes]], None],
        wake: Callable[[], None],
        body: Callable[[], None],
        settle: Callable[[], None] = lambda: None,
    ) -> int:
        """Serve until the end: `body` in this greenlet, `on_messages` in the reading one.

        `wake` must make a waiting `body` return to `flush`. `settle` waits for work that
        `on_messages` began, for a client that closes after its last request.
        Returns the close code.
        """
        self._wake = wake
        reader = gevent.spawn(copy_context().run, self._read, on_messages, settle)
        _open.inc()
        try:
            with self._close_on_error():
                body()
        finally:
            _open.dec()
            reader.kill()
            code = self.end()
        return code

    @contextlib.contextmanager
    def _close_on_error(self) -> Iterator[None]:
        try:
            yield
        except SocketGone:
            pass
        except Stalled:
            self.close(POLICY_VIOLATION, "the client reads too slowly")
        except ApplianceError as error:
            self.close(close_code(error), error.message)
        except MemoryError:
            self.close(GOING_AWAY, OutOfMemory.default_message)
        except Exception:
            self.close(INTERNAL_ERROR, "internal error")
            raise

    def restrict(self) -> None:
        """Apply tighter limits until `identify` is called."""
        burst, now = CONTROL_FRAMES_BURST / 10, self._clock.monotonic()
        quota = TokenBucket(CONTROL_FRAMES_PER_SECOND, burst, now)
        self._incoming.limit(HELLO_BYTES_MAX, quota)

    def identify(self) -> None:
        """Apply the usual limits from the next frame on: the client is authenticated."""
        self.identified = True
        self._incoming.limit(self._frame_bytes_max, self._quota)

    def answer(self, frames: bytes) -> None:
        """Wait until there is capacity, then `post`. For greenlets that may wait."""
        self._yield_sometimes(1)
        if self.is_closing or self.wait_for_capacity(STALL_SECONDS_MAX):
            self.post(frames)
        else:
            self.close(POLICY_VIOLATION, UNREAD)

    def post(self, frames: bytes) -> None:
        """Write `frames` now, or leave them to the writing greenlet. For any greenlet.

        Never waits. A client with more than POSTED_BYTES_MAX waiting is closed with 1008. After
        the close was decided, frames are dropped.
        """
        if self.is_free():
            frames = self._try(frames)
            if not frames:
                return
        if self.is_closing:
            return
        if self._posted_bytes >= POSTED_BYTES_MAX:
            self.close(POLICY_VIOLATION, UNREAD)
            return
        self._posted.append(frames)
        self._posted_bytes += len(frames)
        self._count_unsent()
        self._wake()

    def _count_unsent(self) -> None:
        self._unsent.set_size(self._posted_bytes + self._writing)

    def _cut_off(self) -> None:
        """Close this socket, because it has the most among too many unsent bytes."""
        self.close(POLICY_VIOLATION, "too many unsent bytes for this client")
        with contextlib.suppress(OSError):
            self._plain.shutdown(SHUT_RDWR)  # the writing greenlet may wait in a write

    def is_free(self) -> bool:
        """Return whether `post` can write at once: nothing waits, and the socket is open."""
        return not (self._posted or self._sending or self._tail or self.is_closing)

    @property
    def is_closing(self) -> bool:
        """Return whether the close was decided, on either side."""
        return self._closing is not None or self._ended is not None

    def _try(self, frames: bytes) -> bytes:
        """Write what the kernel takes at once; returns the frames that have to be posted."""
        try:
            sent = self._plain.send(frames)
        except OSError:  # full or closed: left to the writing greenlet
            return frames
        if sent < len(frames):
            self._tail = frames[sent:]
            self._posted_bytes += len(self._tail)
            self._count_unsent()
            self._wake()
        return b""

    def wake_with(self, wake: Callable[[], None]) -> None:
        """Use `wake` to wake the writing greenlet from now on."""
        self._wake = wake

    def wait_for_capacity(self, timeout_seconds: float) -> bool:
        """Wait until posted bytes are below their limit; False when time ran out."""
        if self._posted_bytes < POSTED_BYTES_MAX:
            return True
        self._drained.clear()
        return bool(self._drained.wait(timeout_seconds))

    def close(self, code: int, reason: str = "") -> None:
        """Close this socket with `code`. For any greenlet. Only the first call has an effect."""
        if self._closing is None:
            self._closing = (code, reason)
            self._wake()

    def flush(self) -> None:
        """Write posted frames, and ping if due. Raises SocketGone at the end."""
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
        if now - self._received_at > IDLE_SECONDS_MAX:
            self.close(INTERNAL_ERROR, "the client sent nothing for too long")
        elif now - max(self._received_at, self._pinged) > PING_SECONDS:
            self._pinged = now
            self.send(b"\x89\x00")

    def send(self, frames: bytes) -> None:
        """Write all `frames`; raise Stalled or SocketGone."""
        if self._tail:
            frames = self._tail + frames
            self._tail = b""
        try:
            try:
                # The common case: the kernel takes everything, and no timeout is needed.
                sent = self._plain.send(frames)
            except BlockingIOError:
                sent = 0
            if sent < len(frames):
                self._wait_and_send(memoryview(frames)[sent:])
        except OSError:
            self._ended = self._ended or 1006
            raise SocketGone from None
        if self._unsent.size:
            self._count_unsent()

    def _wait_and_send(self, view: memoryview) -> None:
        self._sending = True
        while view:
            self._writing = len(view)
            self._count_unsent()
            try:
                with gevent.Timeout(STALL_SECONDS_MAX, Stalled):
                    sent = self._raw.send(view)
            except Stalled:
                self._tail = bytes(view)
                raise
            view = view[sent:]
        self._writing = 0
        self._sending = False

    # -- the end --------------------------------------------------------------------

    def end(self) -> int:
        """Finish a frame that was sent in part, send the close frame, and close the socket.

        `run` calls this. Call it for a socket that is never run. Returns the close code.
        """
        code, reason = self._closing or self._incoming.closed or (1000, "")
        if self._ended != 1006:
            with contextlib.suppress(OSError), gevent.Timeout(CLOSE_SECONDS_MAX, False):
                # Without the tail the close frame would become part of an unfinished frame.
                self._raw.sendall(self._tail + close_frame(code, reason))
                self._raw.shutdown(1)
                self._discard()
        self._unsent.set_size(0)
        with contextlib.suppress(OSError):
            self._raw.close()
        # Up to a megabyte. Closed sockets are in reference cycles, and wait for the garbage
        # collector, which counts objects and not bytes.
        self._incoming.clear()
        self._posted.clear()
        self._tail = b""
        code = code if self._closing is not None else (self._ended or 1000)
        _closed.labels(str(code) if code in COUNTED_CODES else "other").inc()
        return code

    def _discard(self) -> None:
        """Read remaining bytes, up to a limit, so that a reset does not discard our close frame."""
        left = DISCARD_BYTES_MAX
        while left > 0 and (data := self._raw.recv(RECEIVE_BYTES)):
            left -= len(data)
            serve_others()  # a constant byte flow would not let other greenlets run

    # -- the reading greenlet ---------------------------------------------------------

    def _read(self, on_messages: Callable[[list[bytes]], None], settle: Callable[[], None]) -> None:
        try:
            with self._close_on_error():
                while data := self._receive():
                    self._received_at = self._clock.monotonic()
                    if self._take(data, on_messages, settle):
                        return
                self._ended = self._ended or 1006
        finally:
            self._wake()

    def _receive(self) -> bytes:
        """Return the next bytes; empty at the end."""
        data, self._leftover = self._leftover, b""
        with contextlib.suppress(OSError):
            return data or bytes(self._raw.recv(RECEIVE_BYTES))
        return b""

    def _take(
        self, data: bytes, on_messages: Callable[[list[bytes]], None], settle: Callable[[], None]
    ) -> bool:
        """Pass on the messages in `data` and respond to pings; True at the end."""
        incoming, more = self._incoming, True
        while more:
            messages = incoming.feed(data)
            data, more = b"", incoming.has_more
            if messages and self._closing is None:  # also before a close frame
                on_messages(messages)
            if incoming.closed is not None:
                settle()
                self._ended = incoming.closed[0]
                return True
            pong = incoming.take_pong()
            if pong is not None:
                self._send_pong(pong)
            if self.is_closing:
                return True
            size = sum(map(len, messages))
            self._yield_sometimes(CHUNK_FRAMES + len(messages) + size // FRAME_BYTES)
        return False

    def _yield_sometimes(self, frames: int) -> None:
        """Let other greenlets run now and then. gevent switches only when a read or write waits, so
        a client that never makes it wait would be the only one served."""
        self._frames_since_yield += frames
        if self._frames_since_yield >= YIELD_FRAMES:
            self._frames_since_yield = 0
            serve_others()

    def _send_pong(self, pong: bytes) -> None:
        """Send now, or with the next write. A newer pong replaces a waiting one."""
        if self.is_free():
            pong = self._try(pong)
        if pong:
            self._pong = pong
            self._wake()


COUNTED_CODES = frozenset(
    {1000, 1001, 1002, 1006, 1007, 1008, 1009, 1011, 4003, 4004, 4010, 4011, 4012, 4401}
)
