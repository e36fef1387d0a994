"""Requests over kept connections, against a scripted server."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count

import pytest

from appliance.kernel.http_client import HttpClient, HttpLimits, Unreachable

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LIMITS = HttpLimits(connect_seconds=2.0, reply_seconds=0.5, reply_bytes_max=100)


class ScriptedServer:
    """Answers request after request; `script` gets the number of the connection and of the
    request on it, both from 0, and returns the bytes of the answer, or None to hang up."""

    def __init__(self, script: Callable[[int, int], bytes | None]) -> None:
        self.script = script
        self.requests: list[bytes] = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection, suppress(OSError):
                    self._answer(connection, self.connections)
                self.connections += 1

    def _answer(self, connection: socket.socket, number: int) -> None:
        connection.settimeout(5)
        for at in count():
            request = b""
            while b"\r\n\r\n" not in request:
                if not (more := connection.recv(65_536)):
                    return
                request += more
            self.requests.append(request)
            if (answer := self.script(number, at)) is None:
                return
            connection.sendall(answer)


@contextmanager
def scripted(script: Callable[[int, int], bytes | None]) -> Iterator[ScriptedServer]:
    server = ScriptedServer(script)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def client_of(server: ScriptedServer, limits: HttpLimits = LIMITS) -> Iterator[HttpClient]:
    client = HttpClient(server.url, limits, "the server")
    try:
        yield client
    finally:
        client.close()


def numbered() -> Callable[[], dict[str, str]]:
    numbers = count(1)
    return lambda: {"X-Number": str(next(numbers))}


def test_kept_connection_that_was_closed_is_replaced_once_with_new_headers() -> None:
    def script(connection: int, at: int) -> bytes | None:
        return None if (connection, at) == (0, 1) else OK

    with scripted(script) as server, client_of(server) as client:
        headers = numbered()
        for _ in range(2):
            assert client.request("POST", "/", headers, b"x").status == 200
    assert [b"X-Number: %d" % n in server.requests[n - 1] for n in (1, 2, 3)] == [True] * 3


def test_new_connection_that_is_closed_is_not_repeated() -> None:
    with (
        scripted(lambda _connection, _at: None) as server,
        client_of(server) as client,
        # Which of them depends on whether the server closes before it has read all.
        pytest.raises(Unreachable, match=r"RemoteDisconnected|ConnectionResetError"),
    ):
        client.request("POST", "/", dict, b"x")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n" + b"x" * 101, "more than 100 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", "did not respond in time"),
        (b"HTTP/1.1 200 OK\r\nContent-", "did not respond in time"),
        (b"nonsense\r\n\r\n", "failed: BadStatusLine"),
    ],
)
def test_incomplete_and_oversized_responses_are_refused(answer: bytes, message: str) -> None:
    with (
        scripted(lambda _connection, _at: answer) as server,
        client_of(server) as client,
        pytest.raises(Unreachable, match=message),
    ):
        client.request("GET", "/", dict)
