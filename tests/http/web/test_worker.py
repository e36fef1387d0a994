"""The worker as clients meet it: keep-alive, framing, bad input, slow peers, the drain."""

import json
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from tests.support.http import TOKEN
from tests.support.http_worker import Served, head, reply_of, served

pytestmark = pytest.mark.slow

NOTE = b'{"text":"x"}'
AUTH = f"Authorization: Bearer {TOKEN}"
JSON = "Content-Type: application/json"


def post(body: bytes = NOTE, *more: str, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return head("POST", "/notes", AUTH, JSON, f"Content-Length: {size}", *more) + body


@pytest.fixture(scope="module")
def worker() -> Iterator[Served]:
    with served(
        HEAD_SECONDS_MAX=1,
        BODY_SECONDS_MAX=1,
        SEND_SECONDS_MAX=2,
        KEEP_ALIVE_SECONDS=3,
        connections_max=8,
    ) as running:
        yield running


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1000) == b""
    except ConnectionResetError:
        return True


def test_pipelined_requests_are_answered_in_order(worker: Served) -> None:
    with worker.connect() as connection:
        connection.sendall(post() + head("GET", "/notes/a") + post() + head("GET", "/notes/b"))
        stream = connection.makefile("rb")
        replies = [reply_of(stream) for _ in range(4)]
    assert [status for status, _, _ in replies] == [201, 200, 201, 200]
    assert json.loads(replies[3][2]) == {"id": "b"}


def test_http_1_0_and_connection_close_end_the_connection(worker: Served) -> None:
    for raw in (
        f"GET /notes/a HTTP/1.0\r\nHost: localhost\r\n{AUTH}\r\n\r\n".encode(),
        head("GET", "/notes/a", "Connection: close"),
    ):
        with worker.connect() as connection:
            connection.sendall(raw)
            status, headers, _ = reply_of(connection.makefile("rb"))
            assert (status, headers["connection"]) == (200, "close")
            assert is_closed(connection)


def test_head_and_options_have_no_body(worker: Served) -> None:
    with worker.connect() as connection:
        connection.sendall(
            head("HEAD", "/notes/a") + head("OPTIONS", "/notes/a") + head("GET", "/notes/a")
        )
        stream = connection.makefile("rb")
        assert reply_of(stream, "HEAD")[1]["content-length"] == "10"
        status, headers, _ = reply_of(stream)
        assert status == 204
        assert "content-length" not in headers
        assert reply_of(stream)[2] == b'{"id":"a"}'


def test_unread_body_is_not_parsed_as_a_request(worker: Served) -> None:
    with worker.connect() as connection:
        inner = head("GET", "/notes/smuggled")
        connection.sendall(
            head("POST", "/notes", f"Content-Length: {len(inner)}")
            + inner
            + head("GET", "/notes/a")
        )
        stream = connection.makefile("rb")
        assert reply_of(stream)[0] == 401
        assert json.loads(reply_of(stream)[2]) == {"id": "a"}


def test_oversize_is_answered_though_the_client_goes_on_sending(worker: Served) -> None:
    size = 5_000_000
    status, _, body = worker.ask(post(b"x" * size))
    assert (status, json.loads(body)["code"]) == (400, "PAYLOAD_TOO_LARGE")


def test_continue_is_sent_only_to_clients_that_may_send_a_body(worker: Served) -> None:
    expect = "Expect: 100-continue"
    with worker.connect() as connection:
        connection.sendall(head("POST", "/notes", AUTH, JSON, "Content-Length: 12", expect))
        stream = connection.makefile("rb")
        assert reply_of(stream)[0] == 100
        connection.sendall(NOTE)
        assert reply_of(stream)[0] == 201
    with worker.connect() as connection:
        connection.sendall(head("POST", "/notes", JSON, "Content-Length: 12", expect))
        status, headers, _ = reply_of(connection.makefile("rb"))
        assert (status, headers["connection"]) == (401, "close")


def test_application_that_fails_outside_is_a_500_without_its_text(worker: Served) -> None:
    for path in ("/crash", "/headers"):
        status, headers, body = worker.ask(head("GET", path))
        assert (status, json.loads(body)["code"]) == (500, "INTERNAL_ERROR")
        assert b"secret" not in body
        assert "injected" not in headers


@pytest.mark.parametrize("raw", [b"GET /notes/a HT", post(length=1000)], ids=["head", "body"])
def test_slow_sender_is_disconnected(worker: Served, raw: bytes) -> None:
    started = time.monotonic()
    with worker.connect() as connection:
        connection.sendall(raw)
        while True:
            try:
                connection.sendall(b"x")
                connection.settimeout(0.1)
                if connection.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
    assert 0.4 < time.monotonic() - started < 8


def test_idle_connection_is_closed_in_the_end(worker: Served) -> None:
    with worker.connect() as connection:
        connection.sendall(head("GET", "/notes/a"))
        stream = connection.makefile("rb")
        assert reply_of(stream)[0] == 200
        assert stream.read() == b""


def test_peer_that_does_not_read_is_disconnected(worker: Served) -> None:
    with worker.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(head("GET", "/big"))
        connection.recv(1)
        deadline = time.monotonic() + 8
        while True:  # the kernel reports the reset although we don't read
            state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO)
            if state != 1 or time.monotonic() > deadline:
                break
            worker.ask(head("GET", "/notes/a"))
        assert state != 1


def test_stream_begun_before_the_stop_ends_with_its_connection() -> None:
    with served(DRAIN_SECONDS_MAX=60) as running, running.connect() as connection:
        connection.sendall(head("GET", "/endless"))
        stream = connection.makefile("rb")
        while b"one" not in stream.readline():
            pass
        running.process.send_signal(signal.SIGTERM)
        running.process.send_signal(signal.SIGUSR2)
        assert b"two" in stream.read()
        assert running.process.wait(5) == 0


def test_stop_closes_idle_connections_and_finishes_what_runs() -> None:
    with served(DRAIN_SECONDS_MAX=8) as running:
        idle, busy = running.connect(), running.connect()
        idle.sendall(head("GET", "/notes/a"))
        assert reply_of(idle.makefile("rb"))[0] == 200
        busy.sendall(head("GET", "/wait"))
        started = time.monotonic()
        _wait_until_working(running)
        running.process.send_signal(signal.SIGTERM)
        assert is_closed(idle)
        assert time.monotonic() - started < 8  # when what runs is cut off
        with pytest.raises(ConnectionRefusedError):
            running.connect()
        running.process.send_signal(signal.SIGUSR2)
        status, headers, body = reply_of(busy.makefile("rb"))
        assert (status, headers["connection"], body) == (200, "close", b"xx")
        assert running.process.wait(5) == 0
        idle.close()
        busy.close()


def test_request_already_sent_when_the_stop_comes_is_answered() -> None:
    with served() as running, running.connect() as connection:
        stream = connection.makefile("rb")
        connection.sendall(head("GET", "/notes/a"))
        reply_of(stream)
        running.process.send_signal(signal.SIGSTOP)
        connection.sendall(post())
        running.process.send_signal(signal.SIGTERM)
        running.process.send_signal(signal.SIGCONT)
        assert reply_of(stream)[0] == 201
        assert is_closed(connection)
        assert running.process.wait(5) == 0


def test_drain_ends_at_its_time_limit() -> None:
    with served(DRAIN_SECONDS_MAX=0.5) as running, running.connect() as busy:
        busy.sendall(head("GET", "/wait"))
        _wait_until_working(running)
        assert running.end() == 0
        assert is_closed(busy)


def _wait_until_working(running: Served) -> None:
    """Until the worker itself says that a request is being worked on."""
    assert running.process.stderr is not None
    for _ in range(200):
        running.process.send_signal(signal.SIGUSR1)
        if json.loads(running.process.stderr.readline())["work_count"] == 1:
            return
    raise AssertionError("the request did not arrive")
