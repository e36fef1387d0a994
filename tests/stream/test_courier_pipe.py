"""The control protocol on a pipe: whatever comes down it, the next line is answered."""

import io
import json

import pytest

from appliance.sdk.pipe import LINE_BYTES_MAX, Pipe, lines_of
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
