"""Frames on a socket after hello: sizes, fragments, control frames, rubbish, goodbyes."""

import contextlib
import json

import pytest

from tests.support.socketclient import CLOSE, PING, TEXT, frame, text
from tests.support.until import until

KB = 1024


def create(topic_id, content="x", number=1):
    data = {"topic_id": topic_id, "sender": "s", "content_raw": content}
    return {"type": "request", "id": number, "op": "message.create", "data": data}


@pytest.mark.parametrize(
    "rubbish",
    [
        b"hello",
        b"null",
        b"[]",
        b"{}",
        b'{"type": "hello"}',
        b'{"type": "request"}',
        b"\xff\xfe",
        b"[" * 5000 + b"]" * 5000,
    ],
)
def test_invalid_frame_after_hello_gets_an_error(client, ids, rubbish):
    client.sock.sendall(text(rubbish))
    reply = client.recv()
    assert (reply["type"], reply["code"]) == ("error", "INVALID_INPUT")
    assert client.request("message.create", create(ids[1])["data"])["status"] == 201


def text_payload(message):
    return json.dumps(message).encode()


def test_valid_message_fits_in_any_escaping(client, ids):
    content = "\u00fc" * 32 * KB  # 64 KB of UTF-8, 192 KB escaped
    assert client.request("message.create", create(ids[1], content)["data"])["status"] == 201
    control = "\u0001" * 64 * KB  # 64 KB of UTF-8, 384 KB escaped: a request above 256 KB
    assert client.request("message.create", create(ids[1], control)["data"])["status"] == 201


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b'"' + b"x" * 256 * KB + b'"', "not a request"),
        (b'{"type":"hello","epoch":"' + b"x" * 256 * KB + b'"}', "not a request either"),
        (text_payload(create("t", "x" * 512 * KB)), "even a request has a limit"),
        (b"x" * 1024 * KB, "far too large"),
    ],
    ids=["text", "hello", "request", "megabyte"],
)
def test_a_frame_that_is_too_large_closes_with_1009(client, payload, why):
    with contextlib.suppress(ConnectionError):  # it may be closed while we are still sending
        client.sock.sendall(frame(TEXT, payload))
    assert client.close_code() == 1009, why


def test_the_limit_counts_all_fragments_together(client):
    piece = b"x" * 100 * KB
    with contextlib.suppress(ConnectionError):
        client.sock.sendall(frame(TEXT, piece, fin=False))
        for _ in range(6):
            client.sock.sendall(frame(0, piece, fin=False))
    assert client.close_code() == 1009


@pytest.mark.parametrize(
    "bytes_",
    [
        b"\x81\x05hello",
        frame(0, b"a continuation of nothing"),
        frame(0x3, b"a reserved opcode"),
        frame(PING, b"x" * 126),
        frame(PING, b"x", fin=False),
        b"\xc1" + frame(TEXT, b"a compressed bit")[1:],
        frame(CLOSE, b"\x03"),
        frame(CLOSE, (999).to_bytes(2, "big")),
    ],
    ids=["unmasked", "cont", "opcode", "long-ping", "cut-ping", "rsv", "short-close", "code"],
)
def test_a_broken_protocol_closes_with_1002(client, bytes_):
    client.sock.sendall(bytes_)
    assert client.close_code() == 1002


@pytest.mark.parametrize("code", [1000, 1001, 3000, 4999])
def test_close_frame_is_answered_with_the_same_code(client, code):
    assert client.goodbye(code) == code


def test_vanished_sockets_leave_nothing_behind(hub, connect, ids):
    for n in range(30):
        client = connect()
        if n % 3:
            client.send({"type": "hello", "after_event_id": 0})
        if n % 3 == 2:
            client.recv()
        client.close()
    metric = "agentlip_socket_open "
    until(lambda: f"{metric}0.0" in hub.http.get("/metrics").raw.decode(), 10, "no socket is open")
