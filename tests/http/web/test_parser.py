"""Requests that a proxy and the worker could read differently, in one table.

Each row goes to a served worker over a connection of its own, followed by another request. A row
that is refused gets 400 (or the limit's status) and a closed connection, so that nothing behind it
is ever taken for a request.
"""

import json
import socket
from collections.abc import Iterator

import pytest

from tests.support.http import TOKEN
from tests.support.http_worker import Served, reply_of, served

BEHIND = b"GET /notes/behind HTTP/1.1\r\nHost: localhost\r\n\r\n"
AUTH = f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n".encode()
NOTE = b'{"text":"x"}'


@pytest.fixture(scope="module")
def worker() -> Iterator[Served]:
    with served() as running:
        yield running


def get(line: bytes = b"GET /notes/a HTTP/1.1", headers: bytes = b"Host: localhost\r\n") -> bytes:
    return line + b"\r\n" + headers + b"\r\n"


def post(headers: bytes, body: bytes = NOTE, version: bytes = b"1.1") -> bytes:
    line = b"POST /notes HTTP/" + version + b"\r\nHost: localhost\r\n"
    return line + AUTH + headers + b"\r\n" + body


def chunked(body: bytes, coding: bytes = b"Transfer-Encoding: chunked\r\n") -> bytes:
    return post(coding, body)


def verdict(worker: Served, raw: bytes) -> tuple[int, bool]:
    """The status of `raw`, and whether the request behind it was answered as well."""
    with worker.connect() as connection:
        connection.sendall(raw + BEHIND)
        stream = connection.makefile("rb")
        status, headers, body = reply_of(stream)
        if status >= 400:
            assert json.loads(body)["code"]
        assert headers["connection"] in ("close", "keep-alive")
        try:
            again = reply_of(stream)
        except (EOFError, ConnectionResetError):
            return status, False
        assert json.loads(again[2]) == {"id": "behind"}
        return status, True


WHOLE = b"c\r\n" + NOTE + b"\r\n0\r\n\r\n"
TE = b"Transfer-Encoding: "

ACCEPTED = {
    "plain": get(),
    "empty line before": b"\r\n" + get(),
    "spaces around a value": get(headers=b"Host:  localhost \t\r\nA:\t b \r\n"),
    "high byte in a value": get(headers=b"Host: localhost\r\nA: caf\xe9\r\n"),
    "query": get(b"GET /notes?after=1 HTTP/1.1"),
    "length": post(b"Content-Length: 12\r\n"),
    "chunked": chunked(WHOLE),
    "chunks, extension, trailer": chunked(
        b"5;a=b\r\n" + NOTE[:5] + b"\r\n7\r\n" + NOTE[5:] + b"\r\n0\r\nA: b\r\n\r\n"
    ),
}
REFUSED_LINES = {
    "bare LF": b"GET /notes/a HTTP/1.1\nHost: localhost\r\n\r\n",
    "bare LF after a header": get(headers=b"Host: localhost\nA: b\r\n"),
    "bare LF before": b"\n" + get(),
    "two empty lines before": b"\r\n\r\n" + get(),
    "bare CR in the line": get(b"GET /notes/a\r HTTP/1.1"),
    "CR before CRLF": get(b"GET /notes/a HTTP/1.1\r"),
    "two spaces before the target": get(b"GET  /notes/a HTTP/1.1"),
    "tab in the line": get(b"GET\t/notes/a HTTP/1.1"),
    "space before the line": get(b" GET /notes/a HTTP/1.1"),
    "HTTP/0.9": b"GET /notes/a\r\n\r\n",
    "HTTP/2.0": get(b"GET /notes/a HTTP/2.0"),
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "lower-case method": get(b"get /notes/a HTTP/1.1"),
    "method that is no token": get(b"G(T /notes/a HTTP/1.1"),
    "absolute-form": get(b"GET http://localhost/notes/a HTTP/1.1"),
    "authority-form": get(b"CONNECT localhost:80 HTTP/1.1"),
    "asterisk-form": get(b"OPTIONS * HTTP/1.1"),
    "fragment": get(b"GET /notes/a#b HTTP/1.1"),
    "NUL in the target": get(b"GET /notes/a\0 HTTP/1.1"),
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}
REFUSED_HEADERS = {
    "folded": get(headers=b"Host: localhost\r\nA: b\r\n c\r\n"),
    "folded framing": post(TE + b"\r\n chunked\r\n", WHOLE),
    "space before the first header": get(headers=b" Host: localhost\r\n"),
    "space before the colon": get(headers=b"Host: localhost\r\nA : b\r\n"),
    "space before the colon of a length": post(b"Content-Length : 12\r\n"),
    "no colon": get(headers=b"Host: localhost\r\nA b\r\n"),
    "high byte in a name": get(headers=b"Host: localhost\r\nA\xe9: b\r\n"),
    "NUL in a value": get(headers=b"Host: localhost\r\nA: b\0c\r\n"),
    "CR in a value": get(headers=b"Host: localhost\r\nA: b\rc\r\n"),
    "no Host": get(headers=b"A: b\r\n"),
    "Host twice": get(headers=b"Host: localhost\r\nHost: localhost\r\n"),
    "two names in Host": get(headers=b"Host: localhost,evil.example\r\n"),
    "path in Host": get(headers=b"Host: localhost/a\r\n"),
}
REFUSED_FRAMING = {
    **{
        f"Transfer-Encoding {value!r}": post(TE + value + b"\r\n", WHOLE)
        for value in (
            b"identity", b"gzip", b"gzip, chunked", b"chunked, gzip", b"chunked, chunked",
            b"identity, chunked", b"chunked, identity", b"xchunked", b"chunkedx", b"Chunked",
            b"CHUNKED", b'"chunked"', b",chunked", b"chunked,", b"chunked;a=b", b"", b" chunked",
            b"\tchunked", b"chunked ", b"\x0bchunked", b"chunked\x00",
        )
    },
    "Transfer-Encoding behind a tab": chunked(WHOLE, b"Transfer-Encoding:\tchunked\r\n"),
    "Transfer-Encoding, one of two wrong": chunked(WHOLE, TE + b"chunked\r\n" + TE + b"x\r\n"),
    "Transfer-Encoding in HTTP/1.0": post(TE + b"chunked\r\n", WHOLE, b"1.0"),
    "both, length first": post(b"Content-Length: 12\r\n" + TE + b"chunked\r\n", WHOLE),
    "both, length second": post(TE + b"chunked\r\nContent-Length: 12\r\n", WHOLE),
    "length twice": post(b"Content-Length: 12\r\n" * 2),
    **{
        f"Content-Length {value!r}": post(b"Content-Length: " + value + b"\r\n")
        for value in (
            b"12, 12", b"12,", b"+12", b"-12", b"1 2", b"0xc", b"1_2", b"12.0", b"", b"\xb2",
            b"12;", b"twelve", b"012", b"9" * 19, b"9" * 5000,
        )
    },
}  # fmt: skip
REFUSED_PATHS = {
    path.decode(): get(b"GET " + path + b" HTTP/1.1")
    for path in (
        b"//notes/a", b"/notes//a", b"/notes/a//", b"/notes/./a", b"/./notes/a", b"/notes/.",
        b"/notes/x/../a", b"/../notes/a", b"/notes/..", b"/notes/%2e/a", b"/notes/%2E%2e/a",
        b"/notes/.%2e", b"/notes%2Fa", b"/notes%2fa", b"/notes/a%2F", b"/notes/%2E%2E%2Fa",
        b"/notes\\a", b"/notes/..\\a", b"/notes/%zz", b"/notes/a%", b"/notes/a%4",
    )
}  # fmt: skip
REFUSED_CHUNKS = {
    f"chunk {body!r}": chunked(body)
    for body in (
        b"zz\r\n" + NOTE + b"\r\n0\r\n\r\n",
        b"\r\n" + NOTE + b"\r\n0\r\n\r\n",
        b"-c\r\n" + NOTE + b"\r\n0\r\n\r\n",
        b"+c\r\n" + NOTE + b"\r\n0\r\n\r\n",
        b"0xc\r\n" + NOTE + b"\r\n0\r\n\r\n",
        b" c\r\n" + NOTE + b"\r\n0\r\n\r\n",
        b"c \r\n" + NOTE + b"\r\n0\r\n\r\n",
        b"c\n" + NOTE + b"\r\n0\r\n\r\n",
        b"c\r\n" + NOTE + b"0\r\n\r\n",
        b"c\r\n" + NOTE + b"\n0\r\n\r\n",
        b"c;a\rb\r\n" + NOTE + b"\r\n0\r\n\r\n",
        b"c;a\nb\r\n" + NOTE + b"\r\n0\r\n\r\n",
        b"c;a b\r\n" + NOTE + b"\r\n0\r\n\r\n",
        b"c\r\n" + NOTE + b"\r\n0\r\nA b\r\n\r\n",
        b"c\r\n" + NOTE + b"\r\n0\r\nA: b\n\r\n\r\n",
        b"c\r\n" + NOTE + b"\r\n0\r\nContent-Length: 1\r\n\r\n",
        b"c\r\n" + NOTE + b"\r\n0\r\n A: b\r\n\r\n",
        b"ffffffffffffffffffff\r\n" + NOTE * 100_000,
    )
}


@pytest.mark.parametrize("raw", ACCEPTED.values(), ids=ACCEPTED)
def test_well_formed_request_is_served_and_the_next_one_too(worker: Served, raw: bytes) -> None:
    status, again = verdict(worker, raw)
    assert (status in (200, 201), again) == (True, True)


MALFORMED = {
    **REFUSED_LINES,
    **REFUSED_HEADERS,
    **REFUSED_FRAMING,
    **REFUSED_PATHS,
    **REFUSED_CHUNKS,
}


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED)
def test_malformed_request_is_400_and_ends_the_connection(worker: Served, raw: bytes) -> None:
    assert verdict(worker, raw) == (400, False)


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (get(b"GET /" + b"a" * 9000 + b" HTTP/1.1"), 414),
        (get(headers=b"Host: localhost\r\nA: " + b"a" * 9000 + b"\r\n"), 431),
        (get(headers=b"Host: localhost\r\n" + b"A: b\r\n" * 200), 431),
        (get(headers=b"Host: localhost\r\n" + (b"A: " + b"a" * 8000 + b"\r\n") * 9), 431),
        (post(b"Expect: miracles\r\n"), 417),
    ],
    ids=["long line", "long header", "many headers", "long head", "expectation"],
)
def test_head_over_a_limit_ends_the_connection(worker: Served, raw: bytes, status: int) -> None:
    assert verdict(worker, raw) == (status, False)


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /notes/a HTTP/1.1\nHost: localhost\n\n",
        b"GET /notes/a HTTP/1.1\r\nHost: localhost\n",
        b"GET /notes/a HTTP/3.3\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"GET /" + b"a" * 9000,
        b"GET / HTTP/1.1\r\n" + (b"A: " + b"a" * 8000 + b"\r\n") * 9,
    ],
    ids=["LF", "LF after a header", "version", "TLS", "long line", "long head"],
)
def test_head_is_refused_before_it_has_ended(worker: Served, raw: bytes) -> None:
    """`HEAD_SECONDS_MAX` is 10 s here: the reply doesn't wait for it."""
    with worker.connect() as connection:
        connection.settimeout(8)
        connection.sendall(raw)
        assert reply_of(connection.makefile("rb"))[0] in (400, 414, 431)


def test_head_that_arrives_in_pieces_is_parsed_as_a_whole(worker: Served) -> None:
    for raw, status in ((get(), 200), (REFUSED_HEADERS["folded"], 400)):
        with worker.connect() as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for at in range(0, len(raw), 3):
                connection.sendall(raw[at : at + 3])
            assert reply_of(connection.makefile("rb"))[0] == status
