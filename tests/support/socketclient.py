"""A small WebSocket client (RFC 6455) that can also send invalid frames."""

import base64
import json
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable
from typing import Any

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
SECONDS_MAX = 15.0


class Refused(Exception):
    """The server answered the upgrade with something else than 101."""

    def __init__(self, status: int, head: str, body: bytes) -> None:
        super().__init__(f"{status}: {body!r}")
        self.status = status
        self.head = head
        self.body = body


class Closed(Exception):
    """The server closed the socket; 1006 when it did so without a close frame."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"{code} {reason}")
        self.code = code
        self.reason = reason


def frame(opcode: int, payload: bytes, *, fin: bool = True) -> bytes:
    """One masked frame, as clients must send them."""
    first = opcode | (0x80 if fin else 0)
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", first, 0x80 | size)
    elif size < 65536:
        head = struct.pack("!BBH", first, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", first, 0x80 | 127, size)
    mask = os.urandom(4)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return head + mask + (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")


def text(message: Any) -> bytes:
    """A text frame of a JSON value, or of bytes as they are."""
    return frame(TEXT, message if isinstance(message, bytes) else json.dumps(message).encode())


class SocketClient:
    """Connected to /ws after the constructor; `recv` gives JSON messages, pings answered."""

    def __init__(
        self,
        port: int,
        token: str | None,
        *,
        query: str = "",
        path: str = "/ws",
        method: str = "GET",
        headers: Iterable[tuple[str, str]] = (),
        first: bytes = b"",
        receive_buffer: int | None = None,
    ) -> None:
        """`first` goes out in one packet with the upgrade."""
        self.sock = socket.socket()
        if receive_buffer is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(SECONDS_MAX)
        self.deadline = time.monotonic() + SECONDS_MAX
        self.sock.connect(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray()
        self.pongs: list[bytes] = []
        sent = {
            "Host": f"127.0.0.1:{port}",
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            "Sec-WebSocket-Version": "13",
        }
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        sent.update(headers)
        lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items() if value)
        self.sock.sendall(f"{method} {path}{query} HTTP/1.1\r\n{lines}\r\n".encode() + first)
        try:
            self.head = self._read_head()
        except BaseException:
            self.sock.close()
            raise

    def _read_head(self) -> str:
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        head, _, rest = bytes(self.buffer).partition(b"\r\n\r\n")
        self.buffer = bytearray(rest)
        text_ = head.decode()
        status = int(text_.split()[1])
        if status != 101:
            try:
                while True:
                    self._more()
            except Closed:
                raise Refused(status, text_, bytes(self.buffer)) from None
        return text_

    # -- sending ---------------------------------------------------------------------------

    def send(self, *messages: Any) -> None:
        """Text frames, all in one write."""
        self.sock.sendall(b"".join(text(message) for message in messages))

    def hello(self, after: int = 0, **more: Any) -> dict[str, Any]:
        """Say hello; the hello_ok."""
        self.send({"type": "hello", "after_event_id": after, **more})
        return self.recv()

    def request(self, op: str, data: Any, number: Any = 1, **more: Any) -> dict[str, Any]:
        """One request; its response, events in between are dropped."""
        self.send({"type": "request", "id": number, "op": op, "data": data, **more})
        return self.until(lambda message: message["type"] != "event")[-1]

    # -- receiving -------------------------------------------------------------------------

    def recv(self, seconds: float = SECONDS_MAX) -> dict[str, Any]:
        """The next message; raises Closed, or TimeoutError."""
        self.deadline = time.monotonic() + seconds
        while True:
            opcode, payload = self.frame()
            if opcode == TEXT:
                return dict(json.loads(payload))
            if opcode == PING:
                self.sock.sendall(frame(PONG, payload))
            elif opcode == PONG:
                self.pongs.append(payload)
            elif opcode == CLOSE:
                code = int.from_bytes(payload[:2], "big") if payload else 1005
                raise Closed(code, payload[2:].decode())

    def frame(self) -> tuple[int, bytes]:
        """The next frame as it came, pings too; within the time of the last `recv`."""
        first, second = self._take(2)
        size = second & 0x7F
        if size == 126:
            size = int.from_bytes(self._take(2), "big")
        elif size == 127:
            size = int.from_bytes(self._take(8), "big")
        return first & 0x0F, self._take(size)

    def until(self, last: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """Messages up to the first for which `last` holds."""
        messages = [self.recv()]
        while not last(messages[-1]):
            messages.append(self.recv())
        return messages

    def events_until(self, number: int) -> list[int]:
        """Ids of the events that come, up to event `number`."""
        results: list[int] = []
        while not results or results[-1] < number:
            message = self.recv()
            if message["type"] == "event":
                results.append(message["event_id"])
        return results

    def close_code(self) -> int:
        return self.closed().code

    def closed(self) -> Closed:
        """What the server closes with; messages before it are dropped."""
        try:
            while True:
                self.recv()
        except Closed as closed:
            return closed

    def _take(self, size: int) -> bytes:
        while len(self.buffer) < size:
            self._more()
        taken = bytes(self.buffer[:size])
        del self.buffer[:size]
        return taken

    def _more(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.sock.settimeout(left)
        try:
            data = self.sock.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            raise Closed(1006)
        self.buffer += data

    # -- the end -----------------------------------------------------------------------------

    def goodbye(self, code: int = 1000) -> int:
        """The close handshake from our side; the code that comes back."""
        self.sock.sendall(frame(CLOSE, code.to_bytes(2, "big")))
        answer = self.close_code()
        self.sock.close()
        return answer

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> "SocketClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
