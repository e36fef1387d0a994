"""A WebSocket as a plain blocking object: one socket, no threads, frames in and out.

The protocol is `websockets`' sans-I/O one. Sending may be done by several threads (a lease
is renewed by another than the one that works); reading only by one.
"""

import select
import socket
import ssl
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidStatus, WebSocketException
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from appliance.kernel.errors import ApplianceError, Unauthenticated, Unavailable
from appliance.sdk.discovery import Endpoint, HubNotRunning

CONNECT_SECONDS_MAX = 10.0
SEND_SECONDS_MAX = 30.0
FRAME_BYTES_MAX = 64 * 1024 * 1024
READ_BYTES = 256 * 1024
PARSE_BYTES = 4 * 1024  # given to the protocol at once; up to 2,000 empty frames
CONTROL_FRAMES_PER_SECOND = 20.0  # pings, pongs and short fragments of the server
CONTROL_FRAMES_BURST = 200.0
SHORT_FRAGMENT_BYTES = 1024
FRAGMENTS_MAX = 100_000  # of one message
TURN_FRAMES = 64
UNAUTHORIZED = 4401


class LinkBroken(Unavailable):
    code = "LINK_BROKEN"
    sentence = "the connection to the appliance broke"
    advice = "agentlipd status"


PASSING = frozenset({429, 500, 502, 503, 504})
"""Statuses that say nothing about the request: full, starting, a proxy with nobody behind it."""


class LinkBusy(LinkBroken):
    code = "LINK_BUSY"
    sentence = "the appliance takes no more sockets for the moment"


class LinkRefused(ApplianceError):
    """The server refused the socket: asking again changes nothing."""

    kind = "invalid"
    code = "LINK_REFUSED"
    sentence = "the appliance refused the socket"
    advice = "look at the address, the token and its scopes: agentlip token list"


class Link:
    """An open WebSocket to `path` of an appliance.

    `ca_file`: certificates to trust instead of the system's. `heard`: when bytes came last,
    in seconds of the monotonic clock; also those of a ping. A server that sends a longer
    frame than `frame_bytes_max`, or floods with frames that carry no message, is left.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        path: str,
        ca_file: str | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        scheme = "wss" if endpoint.secure else "ws"
        uri = parse_uri(f"{scheme}://{endpoint.authority}{endpoint.prefix}{path}")
        self._protocol = ClientProtocol(uri, max_size=frame_bytes_max)
        self._lock = threading.Lock()
        self._closed = self._waiting = False
        self._messages: deque[bytes] = deque()
        self._parts: list[bytes] = []
        self._socket = _dial(endpoint, ca_file)
        self.heard = self._refilled = time.monotonic()
        self._control_left = CONTROL_FRAMES_BURST
        try:
            self._shake_hands(endpoint)
        except BaseException:
            self._socket.close()
            raise
        self._socket.settimeout(SEND_SECONDS_MAX)

    def send(self, text: bytes) -> None:
        with self._lock:
            if self._protocol.state is not State.OPEN:
                raise LinkBroken
            self._protocol.send_text(text)
            self._write()

    def receive(self, timeout_seconds: float | None) -> list[bytes]:
        """Messages that are here, or come within the time; none when nothing came."""
        if not self._messages and not self._is_buffered():
            if self._wait(timeout_seconds):
                self._read()
        elif not self._messages:
            self._read()
        found = list(self._messages)
        self._messages.clear()
        return found

    def _wait(self, timeout_seconds: float | None) -> bool:
        """Whether something came. A `close` by another thread wakes this, and leaves the
        descriptor to it: closed meanwhile, the kernel would not tell, or tell of another one."""
        with self._lock:
            if self._closed:
                raise LinkBroken
            self._waiting = True
        try:
            ready, _, _ = select.select([self._socket], [], [], timeout_seconds)
        finally:
            self._waited()
        return bool(ready)

    def _waited(self) -> None:
        with self._lock:
            self._waiting = False
            if self._closed:
                self._socket.close()

    def _is_buffered(self) -> bool:
        """TLS may hold bytes that the socket itself has not."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def close(self) -> None:
        with self._lock:
            try:
                if self._protocol.state is State.OPEN:
                    self._protocol.send_close(1000)
                    self._write()
            except (LinkBroken, OSError, WebSocketException):
                pass  # the other side was quicker
            self._closed = True
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            if not self._waiting:
                self._socket.close()

    def _shake_hands(self, endpoint: Endpoint) -> None:
        request = self._protocol.connect()
        if endpoint.token:
            request.headers["Authorization"] = f"Bearer {endpoint.token}"
        self._protocol.send_request(request)
        self._write()
        while self._protocol.state is State.CONNECTING and not self._protocol.handshake_exc:
            self._read()
        error = self._protocol.handshake_exc
        if isinstance(error, InvalidStatus):
            status = error.response.status_code
            if status == 401:
                raise Unauthenticated
            raise (LinkBusy if status in PASSING else LinkRefused)(
                f"the appliance answered the socket with status {status}",
                details={"status": status},
            )
        if isinstance(error, InvalidHandshake):
            raise LinkRefused("what answers is no appliance: the handshake failed")

    def _read(self) -> None:
        try:
            data = self._socket.recv(READ_BYTES)
        except OSError as error:
            raise LinkBroken(f"the connection broke: {type(error).__name__}") from None
        self.heard = now = time.monotonic()
        self._control_left = min(
            CONTROL_FRAMES_BURST,
            self._control_left + (now - self._refilled) * CONTROL_FRAMES_PER_SECOND,
        )
        self._refilled = now
        # In pieces: thousands of empty frames are noticed before all of them were parsed.
        for start in range(0, len(data), PARSE_BYTES) or (0,):
            with self._lock:
                if data:
                    self._protocol.receive_data(data[start : start + PARSE_BYTES])
                else:
                    self._protocol.receive_eof()
                events = self._protocol.events_received()
                self._write()
            for event in events:
                self._take(event)
            if self._protocol.close_rcvd or self._protocol.parser_exc:
                break
            if len(events) > TURN_FRAMES:
                time.sleep(0)  # on an event loop others have their turn
        if self._protocol.handshake_exc is not None:
            return
        protocol = self._protocol
        if protocol.state is State.CLOSED or not data or protocol.close_rcvd or protocol.parser_exc:
            self._end()

    def _take(self, event: Any) -> None:
        if not isinstance(event, Frame):
            return
        if event.opcode not in (Opcode.TEXT, Opcode.CONT):
            self._count()
            return
        if not event.fin and len(event.data) < SHORT_FRAGMENT_BYTES:
            self._count()
        if len(self._parts) >= FRAGMENTS_MAX:
            raise LinkBroken("the server sends a message in too many fragments")
        if event.fin and not self._parts:
            self._messages.append(bytes(event.data))
            return
        self._parts.append(bytes(event.data))
        if event.fin:
            self._messages.append(b"".join(self._parts))
            self._parts = []

    def _count(self) -> None:
        self._control_left -= 1
        if self._control_left < 0:
            raise LinkBroken("the server floods this connection with control frames or fragments")

    def _end(self) -> None:
        """The server is gone. What it said before is handed out first."""
        if self._messages:
            return
        told = self._protocol.close_rcvd
        if told is not None and told.code == UNAUTHORIZED:
            raise Unauthenticated(told.reason or None)
        code = told.code if told is not None else 1006
        raise LinkBroken(f"the appliance closed the connection ({code})", details={"code": code})

    def _write(self) -> None:
        data = b"".join(self._protocol.data_to_send())
        if data:
            try:
                self._socket.sendall(data)
            except OSError as error:
                raise LinkBroken(f"the connection broke: {type(error).__name__}") from None


def _dial(endpoint: Endpoint, ca_file: str | None) -> socket.socket:
    try:
        plain = socket.create_connection((endpoint.host, endpoint.port), CONNECT_SECONDS_MAX)
    except OSError as error:
        raise HubNotRunning(f"nothing answers at {endpoint.url}: {type(error).__name__}") from None
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not endpoint.secure:
        return plain
    try:
        context = ssl.create_default_context(cafile=ca_file)
        return context.wrap_socket(plain, server_hostname=endpoint.host)
    except OSError as error:
        plain.close()
        raise HubNotRunning(f"no TLS with {endpoint.url}: {type(error).__name__}") from None
