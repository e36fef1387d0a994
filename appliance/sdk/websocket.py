"""A blocking WebSocket without threads.

The protocol is the sans-I/O implementation of `websockets`. Several threads may send, for example
to renew a lease; only one may read.
"""

import os
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
from appliance.sdk.discovery import Endpoint, HubNotRunning, authorization
from appliance.sdk.http import read_refusal

CONNECT_SECONDS_MAX = 10.0
SEND_SECONDS_MAX = 30.0
FRAME_BYTES_MAX = 64 * 1024 * 1024
READ_BYTES = 256 * 1024
PARSE_BYTES = 4 * 1024  # parsed at once; up to 2,000 empty frames
CONTROL_FRAMES_PER_SECOND = 20.0  # pings, pongs and short fragments from the server
CONTROL_FRAMES_BURST = 200.0
SHORT_FRAGMENT_BYTES = 1024
FRAGMENTS_MAX = 100_000  # in one message
YIELD_FRAMES = 64
UNAUTHORIZED = 4401


class SocketBroken(Unavailable):
    code = "LINK_BROKEN"
    default_message = "the connection to the appliance broke"
    default_hint = "agentlipd status"


TEMPORARY_STATUSES = frozenset({429, 500, 502, 503, 504})
"""Statuses after which a retry may succeed: overloaded, starting, a proxy without a server."""


class SocketBusy(SocketBroken):
    code = "LINK_BUSY"
    default_message = "the appliance accepts no more sockets at the moment"


class SocketRefused(ApplianceError):
    """The server rejected the socket. A retry does not help."""

    kind = "invalid"
    code = "LINK_REFUSED"
    default_message = "the appliance rejected the socket"
    default_hint = "check the address, the token and its scopes: agentlip token list"


class WebSocket:
    """An open WebSocket to `path` on an appliance.

    `ca_file`: certificates to trust, not the system's. `received_at`: when the last bytes arrived,
    including pings, in monotonic clock seconds. The connection is closed if the server sends a
    frame longer than `frame_bytes_max` or too many frames without a message.
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
        self._pid = os.getpid()
        self._messages: deque[bytes] = deque()
        self._fragments: list[bytes] = []
        self._socket = _dial(endpoint, ca_file)
        self.received_at = self._refilled = time.monotonic()
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
                raise SocketBroken
            self._protocol.send_text(text)
            self._write()

    def receive(self, timeout_seconds: float | None) -> list[bytes]:
        """Return the received messages; wait for the first one. Empty if none came in time."""
        self._check_process()
        if not self._messages and not self._is_buffered():
            if self._wait(timeout_seconds):
                self._read()
        elif not self._messages:
            self._read()
        messages = list(self._messages)
        self._messages.clear()
        return messages

    def _wait(self, timeout_seconds: float | None) -> bool:
        """Return whether data arrived. `close` in another thread ends the wait and leaves the
        descriptor open, because closing it during `select` is undefined."""
        with self._lock:
            if self._closed:
                raise SocketBroken
            self._waiting = True
        try:
            ready, _, _ = select.select([self._socket], [], [], timeout_seconds)
        finally:
            self._end_wait()
        return bool(ready)

    def _end_wait(self) -> None:
        with self._lock:
            self._waiting = False
            if self._closed:
                self._socket.close()

    def _is_buffered(self) -> bool:
        """Return whether TLS has buffered bytes that `select` does not see."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def finish(self, seconds_max: float) -> None:
        """Send the close frame and wait for the server's, which follows after all earlier frames
        are read. Without the wait the last frames could be discarded, if bytes from the server are
        unread. For the reading thread."""
        self._send_close()
        deadline = time.monotonic() + seconds_max
        with suppress(ApplianceError):
            while (left := deadline - time.monotonic()) > 0 and not self._protocol.close_rcvd:
                self.receive(left)

    def _send_close(self) -> None:
        with self._lock, suppress(SocketBroken, OSError, WebSocketException):
            if self._protocol.state is State.OPEN:
                self._protocol.send_close(1000)
                self._write()

    def close(self) -> None:
        self._send_close()
        with self._lock:
            self._closed = True
            with suppress(OSError, SocketBroken):
                self._check_process()
                self._socket.shutdown(socket.SHUT_RDWR)
            if not self._waiting:
                self._socket.close()

    def _shake_hands(self, endpoint: Endpoint) -> None:
        request = self._protocol.connect()
        request.headers.update(authorization(endpoint))
        self._protocol.send_request(request)
        self._write()
        while self._protocol.state is State.CONNECTING and not self._protocol.handshake_exc:
            self._read()
        error = self._protocol.handshake_exc
        if isinstance(error, InvalidStatus):
            status = error.response.status_code
            if status == 401:
                raise Unauthenticated
            message, hint = read_refusal(status, error.response.body)
            kind = SocketBusy if status in TEMPORARY_STATUSES else SocketRefused
            raise kind(message, details={"status": status}, hint=hint)
        if isinstance(error, InvalidHandshake):
            raise SocketRefused("the server is not an appliance: the WebSocket handshake failed")

    def _read(self) -> None:
        try:
            data = self._socket.recv(READ_BYTES)
        except OSError as error:
            raise SocketBroken(f"the connection broke: {type(error).__name__}") from None
        self.received_at = now = time.monotonic()
        self._control_left = min(
            CONTROL_FRAMES_BURST,
            self._control_left + (now - self._refilled) * CONTROL_FRAMES_PER_SECOND,
        )
        self._refilled = now
        # Parse in parts, to detect a flood of empty frames before all are parsed.
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
            if len(events) > YIELD_FRAMES:
                time.sleep(0)  # under gevent, let other greenlets run
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
        if len(self._fragments) >= FRAGMENTS_MAX:
            raise SocketBroken("the server sent a message in too many fragments")
        if event.fin and not self._fragments:
            self._messages.append(bytes(event.data))
            return
        self._fragments.append(bytes(event.data))
        if event.fin:
            self._messages.append(b"".join(self._fragments))
            self._fragments = []

    def _count(self) -> None:
        self._control_left -= 1
        if self._control_left < 0:
            raise SocketBroken("the server floods this connection with control frames or fragments")

    def _end(self) -> None:
        """Note that the server closed the connection. Received messages are returned first."""
        if self._messages:
            return
        close = self._protocol.close_rcvd
        if close is not None and close.code == UNAUTHORIZED:
            raise Unauthenticated(close.reason or None)
        code = close.code if close is not None else 1006
        raise SocketBroken(f"the appliance closed the connection ({code})", details={"code": code})

    def _check_process(self) -> None:
        """Refuse to use the parent's connection after a fork."""
        if self._pid != os.getpid():
            raise SocketBroken

    def _write(self) -> None:
        self._check_process()
        data = b"".join(self._protocol.data_to_send())
        if data:
            try:
                self._socket.sendall(data)
            except OSError as error:
                raise SocketBroken(f"the connection broke: {type(error).__name__}") from None


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
        raise HubNotRunning(
            f"TLS handshake with {endpoint.url} failed: {type(error).__name__}"
        ) from None
