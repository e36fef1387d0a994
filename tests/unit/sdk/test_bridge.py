"""The stdio bridge against a hub that misbehaves: its errors, retries and ends."""

import io
import json
import queue
from typing import Any

import pytest

from appliance.sdk.bridge import LINE_BYTES_MAX, Bridge, header_value
from appliance.sdk.discovery import HubNotRunning
from tests.support.faulty_hub import FakeHttp, http_hub

OK = (200, {"Content-Type": "application/json"}, {"jsonrpc": "2.0", "id": 1, "result": {}})
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


class Pipe:
    """An input that ends on request, as a client's does."""

    def __init__(self, *messages: Any) -> None:
        self.lines: queue.Queue[bytes] = queue.Queue()
        for message in messages:
            self.say(message)

    def say(self, message: Any) -> None:
        raw = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.lines.put(raw + b"\n")

    def end(self) -> None:
        self.lines.put(b"")

    def readline(self, _size: int) -> bytes:
        return self.lines.get(timeout=30)


def bridged(fake: FakeHttp, *messages: Any) -> list[dict[str, Any]]:
    """What the bridge writes about these messages."""
    target = io.BytesIO()
    pipe = Pipe(*messages)
    pipe.end()
    with http_hub(fake) as endpoint:
        Bridge(lambda: endpoint, pipe, target, lambda _: None).run()  # type: ignore[arg-type]
    return [json.loads(line) for line in target.getvalue().splitlines()]


def test_request_is_forwarded_unchanged_with_the_token() -> None:
    fake = FakeHttp(OK)
    line = b'{"jsonrpc":"2.0",  "id":1,"method":"tools/list","big":123456789012345678901234567890}'
    assert bridged(fake, line) == [OK[2]]
    (request,) = fake.requests
    assert request["body"] == line
    assert request["headers"]["authorization"] == "Bearer " + "t" * 64
    assert request["path"] == "/mcp"


def test_tool_call_without_a_hub_is_a_result_with_an_error() -> None:
    def locate() -> Any:
        raise HubNotRunning

    target = io.BytesIO()
    pipe = Pipe(CALL | {"method": "tools/call", "params": {"name": "status"}}, CALL | {"id": 2})
    pipe.end()
    Bridge(locate, pipe, target, lambda _: None).run()  # type: ignore[arg-type]
    replies = {reply["id"]: reply for reply in map(json.loads, target.getvalue().splitlines())}
    assert replies[1]["result"]["isError"] is True
    assert json.loads(replies[1]["result"]["content"][0]["text"])["code"] == HubNotRunning.code
    assert "error" in replies[2], "a list of tools can't be a failed tool"


@pytest.mark.parametrize(
    ("line", "code"),
    [(b"{nonsense", -32700), (b"[]", -32600), (b'"text"', -32600), (b'{"id":{}}', -32600)],
)
def test_invalid_message_gets_an_error_without_an_id(line: bytes, code: int) -> None:
    (reply,) = bridged(FakeHttp(OK), line)
    assert (reply["id"], reply["error"]["code"]) == (None, code)


def test_too_long_line_is_skipped_entirely() -> None:
    target = io.BytesIO()
    text = b'{"id":1,"x":"' + b"a" * LINE_BYTES_MAX + b'"}\n' + json.dumps(CALL).encode() + b"\n"
    with http_hub(FakeHttp(OK)) as endpoint:
        Bridge(lambda: endpoint, io.BytesIO(text), target, lambda _: None).run()
    replies = [json.loads(line) for line in target.getvalue().splitlines()]
    assert [each["id"] for each in replies] == [None, 1]
    assert replies[0]["error"]["code"] == -32600


def test_http_errors_of_the_hub_become_json_rpc_errors() -> None:
    body = {"error": "rate limit exceeded", "code": "RATE_LIMITED", "hint": "wait"}
    (reply,) = bridged(FakeHttp((429, {}, body)), CALL)
    assert reply["id"] == 1
    assert reply["error"]["message"] == "rate limit exceeded"
    assert reply["error"]["data"]["code"] == "RATE_LIMITED"


def test_refused_token_is_read_again_once() -> None:
    refused = (401, {}, {"error": "missing or invalid token", "code": "UNAUTHORIZED"})
    fake = FakeHttp(refused, OK)
    assert bridged(fake, CALL) == [OK[2]]
    fake = FakeHttp(refused)
    (reply,) = bridged(fake, CALL)
    assert len(fake.requests) == 2
    assert reply["error"]["data"]["code"] == "UNAUTHORIZED"


def test_broken_connection_is_reported_and_not_retried() -> None:
    fake = FakeHttp("hang up")
    (reply,) = bridged(fake, {**CALL, "id": "a"})
    assert reply["id"] == "a"
    assert "check before you repeat it" in reply["error"]["data"]["hint"]
    assert len(fake.requests) == 1


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain", "plain"),
        ("", ""),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
    ],
)
def test_header_values_are_encoded_as_the_specification_requires(value: str, written: str) -> None:
    assert header_value(value) == written
