"""The control protocol on a pipe: errors don't end it."""

import io
import json
import subprocess
import sys

import pytest

from appliance.sdk.stdio_protocol import LINE_BYTES_MAX, StdioConnection, lines_of
from tests.support.commands import environment
from tests.support.courier import envelope, locate, opened, receive_frame, stats
from tests.support.until import until


class PipeFixture:
    """A pipe, and the lines that it wrote."""

    def __init__(self, hub):
        self.lines = []
        self.pipe = StdioConnection(locate(hub), self.lines.append)

    def accept(self, line):
        self.pipe.accept(line if isinstance(line, bytes) else json.dumps(line).encode())

    def frames(self, kind):
        frames = [json.loads(line) for line in tuple(self.lines)]
        return [frame for frame in frames if frame["type"] == kind]


@pytest.fixture
def side(hub):
    side = PipeFixture(hub)
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
def test_invalid_line_gets_an_error_and_the_next_is_handled(side, line):
    side.accept(line)
    (error,) = side.frames("error")
    assert error["code"] == "InvalidEnvelope"
    side.accept({"type": "snapshot", "view": "latestPerAgent", "reqId": 1})
    assert side.frames("ok")[0]["reqId"] == 1


def test_hello_gets_ok_with_the_reqid_that_clients_wait_for(side):
    """The client of the original Courier sends `hello` without one and waits for `hello`."""
    side.accept({"type": "hello", "version": "v1", "features": []})
    side.accept({"type": "hello", "version": "v1", "reqId": "h-1"})
    result = {"version": "v1", "features": ["credit", "views", "triggers"]}
    assert [json.loads(line) for line in side.lines] == [
        {"type": "ok", "reqId": "hello", "result": result},
        {"type": "ok", "reqId": "h-1", "result": result},
    ]
    side.accept({"type": "hello", "version": "v9"})
    assert [frame["reqId"] for frame in side.frames("error")] == ["hello"]


def test_rest_of_an_oversized_line_is_skipped():
    smuggled = b'{"type":"enqueue","to":"smuggled","env":{}}'
    for blank in (LINE_BYTES_MAX, LINE_BYTES_MAX + 1, 2 * LINE_BYTES_MAX + 2):
        stream = io.BytesIO(b" " * blank + smuggled + b"\n" + b'{"next": 1}\n')
        first, *rest = lines_of(stream)
        assert len(first) > LINE_BYTES_MAX
        assert rest == [b'{"next": 1}\n']


def test_delivery_is_unchanged_and_on_one_line(hub, side):
    stream = "pipe/untouched"
    text = '{\n "id": "a", "ts": "2025",\r\n "type": "t", "payload": {"n": 1e400, "m": 1.10}}'
    side.accept({"type": "subscribe", "stream": stream})
    side.accept({"type": "grant", "n": 2})
    with opened(hub, "/v1/publish") as publisher:
        publisher.send(f'{{"seq": 1, "to": "{stream}", "envelope": {text}}}')
        assert receive_frame(publisher) == {"accepted": 1}
    until(lambda: side.frames("deliver"), 10, "the delivery")
    (line,) = [line for line in side.lines if b'"deliver"' in line]
    assert line.count(b"\n") == 1
    assert b'"payload": {"n": 1e400, "m": 1.10}' in line
    side.accept({"type": "ack", "id": "a"})
    until(lambda: stats(hub, stream)["acked"] == 1, 10, "the ack arrives")
    side.accept({"type": "enqueue", "to": stream, "env": envelope("b")})
    until(lambda: len(side.frames("deliver")) == 2, 10, "the subscription goes on")


@pytest.mark.slow
def test_control_protocol_on_a_pipe(hub):
    process = subprocess.Popen(
        [sys.executable, "-m", "appliance", "courier", "pipe", "--workspace", str(hub.workspace)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def ask(**frame):
        process.stdin.write(json.dumps(frame).encode() + b"\n")
        process.stdin.flush()

    def answer():
        return json.loads(process.stdout.readline())

    ask(type="hello", version="v1", features=["credit"])
    assert answer()["reqId"] == "hello"
    ask(type="subscribe", stream="pipe/a", reqId=1)
    assert answer()["reqId"] == 1
    ask(type="grant", n=2)
    ask(type="enqueue", to="pipe/a", env=envelope("p"), reqId=2)
    answers = {frame["type"]: frame for frame in (answer(), answer())}
    assert answers["deliver"]["env"]["id"] == "p"
    assert answers["ok"]["result"] == {"id": "p"}
    ask(type="ack", id="p")
    ask(type="dance", reqId=5)
    assert answer() == {
        "type": "error", "code": "Unsupported", "reqId": 5, "detail": "unknown operation 'dance'",
    }  # fmt: skip
    process.stdin.close()
    assert process.wait(20) == 0
    until(lambda: stats(hub, "pipe/a")["acked"] == 1, 10, "the ack arrives")
