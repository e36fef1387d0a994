"""A cursor beyond the newest event is of another history: it is refused, whatever reads with it."""

import json

import pytest

from tests.support.servedhub import serve

pytestmark = pytest.mark.slow

CODE = "CURSOR_BEYOND_END"


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("hub")) as hub:
        hub.channel_with_topic("general")
        hub.made(hub.http.post("/bus/v1/messages", {"from_agent": "ada", "type": "note"}))
        yield hub


READS = {
    "list": ("/api/v1/events?after={}", {}, 2),
    "long poll": ("/api/v1/events?after={}&wait=60", {}, 2),
    "event stream": ("/api/v1/events/stream?after={}", {}, 2),
    "resumed event stream": ("/api/v1/events/stream", {"Last-Event-ID": "{}"}, 2),
    "bus": ("/bus/v1/messages?agent=ada&after={}", {}, 1),
    "bus long poll": ("/bus/v1/messages?agent=ada&after={}&wait=60", {}, 1),
    "bus stream": ("/bus/v1/stream?after={}", {}, 1),
    "resumed bus stream": ("/bus/v1/stream", {"Last-Event-ID": "{}"}, 1),
}


@pytest.mark.parametrize("read", READS)
def test_cursor_beyond_the_end_is_refused(hub, read):
    path, headers, newest = READS[read]
    sent = {name: value.format(newest + 1) for name, value in headers.items()}
    reply = hub.http.get(path.format(newest + 1), headers=sent)
    assert (reply.status, reply.body["code"]) == (409, CODE)
    details = reply.body["details"]
    assert (details["after"], details["replay_until"]) == (newest + 1, newest)


@pytest.mark.parametrize("read", ["list", "bus"])
def test_cursor_at_the_end_is_not_refused(hub, read):
    path, _, newest = READS[read]
    assert hub.http.get(path.format(newest)).status == 200


def test_tool_refuses_a_cursor_beyond_the_end(hub):
    call = {"name": "wait_events", "arguments": {"after": 3}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    result = json.dumps(hub.http.post("/mcp", request).body)
    assert CODE in result
    assert "after 0" in result
