"""The cheapest clients that still check every answer: raw sockets, one buffer each."""

import base64
import json
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from tests.bench.target import RowFailed, Target

NOW = time.perf_counter  # CLOCK_MONOTONIC on Linux: one clock for all processes
ANSWER_SECONDS_MAX = 60.0
RECEIVE_BYTES = 1 << 18


def connect(target: Target, receive_buffer_bytes: int | None = None) -> socket.socket:
    family = socket.AF_INET6 if ":" in target.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    if receive_buffer_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    sock.settimeout(ANSWER_SECONDS_MAX)
    sock.connect(target.address)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def encode(target: Target, method: str, path: str, content: Any = None) -> bytes:
    """A whole request, ready to send."""
    body = b"" if content is None else json.dumps(content).encode()
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {target.host}:{target.port}",
        f"Authorization: Bearer {target.token}",
    ]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Http:
    """One keep-alive connection; one request on its way at a time."""

    def __init__(self, target: Target) -> None:
        self.sock = connect(target)
        self.target = target
        self.started = 0.0
        self._buffer = b""

    def send(self, request: bytes) -> None:
        self.started = NOW()
        self.sock.sendall(request)

    def receive(self) -> tuple[int, bytes] | None:
        """Status and body when one `recv` completed them, else None: more must come."""
        data = self.sock.recv(RECEIVE_BYTES)
        if not data:
            raise RowFailed("the server closed a connection in the middle of a row")
        self._buffer += data
        head_end = self._buffer.find(b"\r\n\r\n")
        if head_end < 0:
            return None
        start = self._buffer.find(b"content-length: ", 0, head_end)
        if start < 0:
            raise RowFailed("a response came without content-length")
        start += 16
        end = self._buffer.find(b"\r", start)
        size = head_end + 4 + int(self._buffer[start:end])
        if len(self._buffer) < size:
            return None
        status, body = int(self._buffer[9:12]), self._buffer[head_end + 4 : size]
        self._buffer = self._buffer[size:]
        return status, body

    def ask(self, request: bytes) -> tuple[int, bytes]:
        self.send(request)
        while (answer := self.receive()) is None:
            pass
        return answer

    def call(self, method: str, path: str, content: Any = None) -> Any:
        """Decoded body of a request that must succeed; not for hot paths."""
        status, body = self.ask(encode(self.target, method, path, content))
        check(status, body)
        return json.loads(body)

    def close(self) -> None:
        self.sock.close()


def check(status: int, body: bytes) -> None:
    if status not in (200, 201, 202):
        raise RowFailed(f"status {status}: {body[:300]!r}")


class Answers:
    """What came back: a time and a body for each request, in the order they ended."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.bodies: list[bytes] = []

    def add(self, seconds: float, status: int, body: bytes) -> None:
        check(status, body)
        self.seconds.append(seconds)
        self.bodies.append(body)


def one_by_one(connection: Http, requests: Sequence[bytes]) -> Answers:
    answers = Answers()
    for request in requests:
        status, body = connection.ask(request)
        answers.add(NOW() - connection.started, status, body)
    return answers


def closed_loop(target: Target, requests: Sequence[bytes], clients: int) -> Answers:
    """All `requests` over `clients` connections, each asking again once it was answered."""
    answers, waiting = Answers(), iter(requests)
    poll = select.epoll()
    connections: dict[int, Http] = {}
    try:
        for request in islice(waiting, clients):
            connection = Http(target)
            connections[connection.sock.fileno()] = connection
            poll.register(connection.sock, select.EPOLLIN)
            connection.send(request)
        while len(answers.seconds) < len(requests):
            ready = poll.poll(ANSWER_SECONDS_MAX)
            if not ready:
                raise RowFailed(f"no answer for {ANSWER_SECONDS_MAX:g} s")
            for descriptor, _ in ready:
                connection = connections[descriptor]
                answer = connection.receive()
                if answer is None:
                    continue
                answers.add(NOW() - connection.started, *answer)
                for request in islice(waiting, 1):
                    connection.send(request)
    finally:
        for connection in connections.values():
            connection.close()
        poll.close()
    return answers


class WebSocket:
    """Text frames only; answers no pings."""

    def __init__(self, target: Target, path: str, receive_buffer_bytes: int | None = None) -> None:
        self.sock = connect(target, receive_buffer_bytes)
        self._buffer = bytearray()
        key = base64.b64encode(os.urandom(16)).decode()
        self.sock.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {target.host}:{target.port}\r\n"
            f"Authorization: Bearer {target.token}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            self._take()
        if int(self._buffer[9:12]) != 101:
            raise RowFailed(f"upgrade refused: {bytes(self._buffer[:200])!r}")
        del self._buffer[: end + 4]

    def _take(self) -> None:
        data = self.sock.recv(RECEIVE_BYTES)
        if not data:
            raise RowFailed("the server closed a WebSocket in the middle of a row")
        self._buffer += data

    def receive(self) -> list[bytes]:
        """Text frames that one `recv` completed, perhaps none."""
        self._take()
        frames, used = split(self._buffer)
        del self._buffer[:used]
        return frames

    def say(self, text: bytes) -> None:
        self.sock.sendall(masked(text))

    def rest(self) -> bytes:
        """Bytes that came and belong to no whole frame yet; they are handed over."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def close(self) -> None:
        self.sock.close()


class HubSocket(WebSocket):
    """A client of the hub that has said hello."""

    def __init__(
        self,
        target: Target,
        after: int,
        subscriptions: dict[str, list[str]] | None,
        receive_buffer_bytes: int | None = None,
    ) -> None:
        super().__init__(target, "/ws", receive_buffer_bytes)
        hello: dict[str, Any] = {"type": "hello", "after_event_id": after}
        if subscriptions is not None:
            hello["subscriptions"] = subscriptions
        self.sent_hello_at = NOW()
        self.say(json.dumps(hello).encode())
        while not (frames := self.receive()):
            pass
        answer = json.loads(frames[0])
        if answer.get("type") != "hello_ok":
            raise RowFailed(f"expected hello_ok, got {frames[0][:200]!r}")
        self.replay_until: int = answer["replay_until"]
        self.early = frames[1:]


def masked(payload: bytes, opcode: int = 1) -> bytes:
    """A client's frame. The mask is zero: legal, and the payload goes as it is."""
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", 0x80 | opcode, 0x80 | size)
    elif size < 65536:
        head = struct.pack("!BBH", 0x80 | opcode, 0xFE, size)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, 0xFF, size)
    return head + b"\0\0\0\0" + payload


def split(buffer: bytes | bytearray) -> tuple[list[bytes], int]:
    """Text payloads of the whole frames at the start of `buffer`, and the bytes they used."""
    frames, position, size = [], 0, len(buffer)
    while size - position >= 2:
        first, length, head = buffer[position], buffer[position + 1], 2
        if length == 126:
            if size - position < 4:
                break
            length, head = int.from_bytes(buffer[position + 2 : position + 4], "big"), 4
        elif length == 127:
            if size - position < 10:
                break
            length, head = int.from_bytes(buffer[position + 2 : position + 10], "big"), 10
        end = position + head + length
        if end > size:
            break
        if first == 0x81:
            frames.append(bytes(buffer[position + head : end]))
        elif first & 0x0F == 8:
            raise RowFailed(f"the server closed a WebSocket: {bytes(buffer[position:end])!r}")
        position = end
    return frames, position


def pipelined(
    socket_: HubSocket, frames: Sequence[bytes], window: int, answered: Callable[[bytes], None]
) -> None:
    """All `frames` (masked) with at most `window` unanswered; each answer is handed on."""
    sent = min(window, len(frames))
    done = 0
    socket_.sock.sendall(b"".join(frames[:sent]))
    while done < len(frames):
        answers = socket_.receive()
        for answer in answers:
            answered(answer)
        done += len(answers)
        more = min(len(frames), done + window)
        if more > sent:
            socket_.sock.sendall(b"".join(frames[sent:more]))
            sent = more
