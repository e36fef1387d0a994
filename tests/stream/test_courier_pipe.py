"""The control protocol on a pipe: whatever comes down it, the next line is answered."""

import io
import json
import socket
import threading

import pytest

from appliance.sdk.stdio_protocol import LINE_BYTES_MAX, Pipe, lines_of, serve_socket
from tests.stream.test_courier_clients import locate
from tests.support.courier import TOML, envelope, hear, opened, stats
from tests.support.hubprocess import served
from tests.support.until import until


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    workspace = tmp_path_factory.mktemp("courier")
    (workspace / "agentlip.toml").write_text(TOML)
    with served(workspace, "--no-limits") as hub:
        yield hub


class Side:
    """What is said into a pipe, line by line, and what it answered."""

    def __init__(self, hub):
        self.said = []
        self.pipe = Pipe(locate(hub), self.said.append)

    def take(self, line):
        self.pipe.take(line if isinstance(line, bytes) else json.dumps(line).encode())

    def heard(self, kind):
        found = [json.loads(line) for line in tuple(self.said)]
        return [frame for frame in found if frame["type"] == kind]


@pytest.fixture
def side(hub):
    side = Side(hub)
    yield side
    side.pipe.run([])


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"hello","a":' + b"[" * 2000 + b"]" * 2000 + b"}",
        b'{"a":' * 2000,
        b"\xff\xfe",
        b'{"type":"grant","n":1e400}',
        b'{"type":"stats","stream":7,"reqId":{"a":[1]}}',
        b"x" * (LINE_BYTES_MAX + 10),
    ],
)
def test_a_line_that_is_wrong_is_told_and_the_next_is_answered(side, line):
    side.take(line)
    (error,) = side.heard("error")
    assert error["code"] == "InvalidEnvelope"
    side.take({"type": "snapshot", "view": "latestPerAgent", "reqId": 1})
    assert side.heard("ok")[0]["reqId"] == 1


def test_a_hello_with_a_reqid_is_answered_with_ok_too(side):
    """Clients of the specification wait for the `ok` of whatever they gave an id."""
    side.take({"type": "hello", "version": "v1", "features": ["credit"], "reqId": "h-1"})
    first, second = (json.loads(line) for line in side.said)
    assert first == {"type": "hello", "version": "v1", "features": ["credit"]}
    assert second == {
        "type": "ok", "reqId": "h-1", "result": {"version": "v1", "features": ["credit"]}
    }  # fmt: skip
    side.take({"type": "hello", "version": "v1"})
    assert [frame["type"] for frame in map(json.loads, side.said[2:])] == ["hello"]
    side.take({"type": "hello", "version": "v9", "reqId": 2})
    assert [frame["reqId"] for frame in side.heard("error")] == [2]


def test_a_client_that_disconnects_leaves_no_traceback_and_no_thread(hub, tmp_path, monkeypatch):
    """It has a subscription, and deliveries on their way to it, when it goes."""
    raised = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    path = tmp_path / "pipe"
    served_ = threading.Thread(target=serve_socket, args=(locate(hub), path), daemon=True)
    served_.start()
    until(path.is_socket, 10, "the socket")
    before = set(threading.enumerate())
    for number in range(4):
        stream = f"gone/{number}"
        with socket.socket(socket.AF_UNIX) as client, client.makefile("rb") as lines:
            client.connect(str(path))
            said = [{"type": "subscribe", "stream": stream, "reqId": 1}, {"type": "grant", "n": 9}]
            client.sendall(b"".join(json.dumps(frame).encode() + b"\n" for frame in said))
            assert json.loads(lines.readline())["type"] == "ok"
            if number % 2:  # an answer that nobody reads any more
                client.sendall(b'{"type":"metrics","reqId":2}\n' * 50)
        with opened(hub, "/v1/publish") as one:
            one.send(json.dumps({"seq": 1, "to": stream, "envelope": envelope(f"e{number}")}))
            assert hear(one) == {"accepted": 1}
    until(lambda: set(threading.enumerate()) <= before, 20, "the clients' threads end")
    assert raised == []


def test_the_end_of_the_lines_ends_the_subscription_in_silence(hub):
    side = Side(hub)
    side.take({"type": "subscribe", "stream": "pipe/silent", "reqId": 1})
    before = len(side.said)
    side.pipe.run([])
    until(lambda: not stats(hub, "pipe/silent")["subscribers"], 10, "it left")
    assert side.said[before:] == []


def test_a_subscription_whose_client_is_gone_raises_nothing(hub, monkeypatch):
    """The thread that tells an error finds nobody to tell it to."""
    raised = []
    monkeypatch.setattr(threading, "excepthook", raised.append)

    def gone(_line):
        raise BrokenPipeError

    pipe = Pipe(locate(hub), gone)
    pipe.take(b'{"type":"subscribe","stream":"pipe/gone"}')
    (link,) = pipe._links.values()
    link._socket.shutdown(socket.SHUT_RDWR)  # as when the appliance ends
    until(lambda: not pipe._links, 10, "the subscription ends")
    pipe.run([])
    assert raised == []


def test_the_end_of_a_line_that_is_too_long_is_no_line():
    smuggled = b'{"type":"enqueue","to":"smuggled","env":{}}'
    for blank in (LINE_BYTES_MAX, LINE_BYTES_MAX + 1, 2 * LINE_BYTES_MAX + 2):
        stream = io.BytesIO(b" " * blank + smuggled + b"\n" + b'{"next": 1}\n')
        first, *rest = lines_of(stream)
        assert len(first) > LINE_BYTES_MAX
        assert rest == [b'{"next": 1}\n']


def test_a_delivery_comes_as_it_was_sent_and_on_one_line(hub, side):
    stream = "pipe/untouched"
    text = '{\n "id": "a", "ts": "2025",\r\n "type": "t", "payload": {"n": 1e400, "m": 1.10}}'
    side.take({"type": "subscribe", "stream": stream})
    side.take({"type": "grant", "n": 2})
    with opened(hub, "/v1/publish") as one:
        one.send(f'{{"seq": 1, "to": "{stream}", "envelope": {text}}}')
        assert hear(one) == {"accepted": 1}
    until(lambda: side.heard("deliver"), 10, "the delivery")
    (line,) = [line for line in side.said if b'"deliver"' in line]
    assert line.count(b"\n") == 1
    assert b'"payload": {"n": 1e400, "m": 1.10}' in line
    side.take({"type": "ack", "id": "a"})
    until(lambda: stats(hub, stream)["acked"] == 1, 10, "the ack arrives")
    side.take({"type": "enqueue", "to": stream, "env": envelope("b")})
    until(lambda: len(side.heard("deliver")) == 2, 10, "the subscription goes on")


def test_a_double_ack_says_which_and_that_it_is_a_conflict(side):
    side.take({"type": "subscribe", "stream": "pipe/double"})
    side.take({"type": "ack", "id": "never"})
    until(lambda: side.heard("error"), 10, "the refusal")
    (error,) = side.heard("error")
    assert (error["status"], error["id"]) == (409, "never")
    side.take({"type": "grant", "n": 99_999_999})
    until(lambda: len(side.heard("error")) == 2, 10, "the refusal")
    error = side.heard("error")[1]
    assert (error["code"], error["status"], error["field"]) == ("RateLimited", 400, "credit")
