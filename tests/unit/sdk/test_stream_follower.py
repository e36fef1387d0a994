"""Following a stream through everything that can happen to it."""

from typing import Any

import pytest
from msgspec import structs
from websockets.exceptions import ConnectionClosedError
from websockets.frames import Close
from websockets.sync.server import ServerConnection

from appliance.sdk.discovery import Endpoint
from appliance.sdk.stream_follower import Follower, Rejected, StreamBroken, TokenRefused
from tests.support.faulty_hub import FakeHttp, event, hello, http_hub, say, stream_hub


class _Watch:
    """Keeps what a follower said and how long it would have waited."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.pauses: list[float] = []

    def follower(self, endpoint: Endpoint, **more: Any) -> Follower:
        return Follower(
            lambda: endpoint, say=self.messages.append, sleep=self.pauses.append, **more
        )


def _numbers(follower: Follower, count: int) -> list[int]:
    ids: list[int] = []
    for each in follower.events():
        assert each is not None
        ids.append(each.event_id)
        if len(ids) == count:
            break
    return ids


def _ok(socket: ServerConnection, until: int = 0, epoch: str = "e1") -> dict[str, Any]:
    received = hello(socket)
    say(socket, type="hello_ok", replay_until=until, instance_id="i", epoch=epoch)
    return received


def test_refused_upgrade_passes_the_advice_on() -> None:
    refusal = (400, {}, {"error": "no Upgrade header", "hint": "pass Upgrade on"})
    with http_hub(FakeHttp(refusal)) as hub, pytest.raises(StreamBroken, match="no Up") as raised:
        next(_Watch().follower(hub).events())
    assert raised.value.hint == "pass Upgrade on"


def test_reconnect_after_close_1001_waits_five_seconds() -> None:
    def leaving(socket: ServerConnection) -> None:
        _ok(socket)
        socket.close(1001)

    def back(socket: ServerConnection) -> None:
        _ok(socket)
        event(socket, 1)
        socket.recv()

    watch = _Watch()
    with stream_hub(leaving, back) as endpoint:
        assert _numbers(watch.follower(endpoint), 1) == [1]
    assert watch.pauses == [5.0]


def test_hub_that_reads_the_token_in_the_query_only_is_followed() -> None:
    paths = []

    def by_query(socket: ServerConnection) -> None:
        paths.append(socket.request.path)
        if "?token=s%2Fecret" not in socket.request.path:
            socket.close(4401)
            return
        _ok(socket)
        event(socket, 1)
        socket.recv()

    watch = _Watch()
    with stream_hub(by_query, by_query) as endpoint:
        known = structs.replace(endpoint, token="s/ecret")
        assert _numbers(watch.follower(known), 1) == [1]
    assert paths == ["/ws", "/ws?token=s%2Fecret"]
    assert watch.pauses == [0.0]


def test_token_is_not_sent_to_another_machine_in_the_query(monkeypatch) -> None:
    urls = []

    def refuse(url: str, **_: Any) -> None:
        urls.append(url)
        raise ConnectionClosedError(Close(4401, ""), None)

    monkeypatch.setattr("appliance.sdk.stream_follower.connect", refuse)
    endpoint = Endpoint("hub.example.org", 443, secure=True, token="secret")
    with pytest.raises(TokenRefused):
        _numbers(_Watch().follower(endpoint, insist=True), 1)
    assert urls == ["wss://hub.example.org/ws"] * 2


def test_cursor_beyond_the_head_starts_from_zero() -> None:
    hellos = []

    def behind(socket: ServerConnection) -> None:
        hellos.append(_ok(socket, until=50))
        socket.recv()

    def second(socket: ServerConnection) -> None:
        hellos.append(_ok(socket, until=50))
        event(socket, 1)
        socket.recv()

    watch = _Watch()
    with stream_hub(behind, second) as endpoint:
        assert _numbers(watch.follower(endpoint, after=100), 1) == [1]
    assert [each["after_event_id"] for each in hellos] == [100, 0]
    assert watch.pauses == []
    assert "starting from the beginning" in watch.messages[0]


def test_refused_hello_is_not_retried() -> None:
    def part(socket: ServerConnection) -> None:
        hello(socket)
        say(socket, type="error", code="INVALID_INPUT", error="too many topics")
        socket.recv()

    with stream_hub(part) as endpoint, pytest.raises(Rejected, match="too many topics"):
        _numbers(_Watch().follower(endpoint), 1)


def test_unknown_frames_are_ignored_and_envelopes_are_unchanged() -> None:
    text = (
        '{"type":"event","event_id":1,"name":"new.kind","later":{"a":[1]},"data":{"x":"\\u00fc"}}'
    )

    def part(socket: ServerConnection) -> None:
        _ok(socket)
        say(socket, type="notice", event_id=99)
        socket.send(text)
        socket.recv()

    with stream_hub(part) as endpoint:
        first = next(iter(_Watch().follower(endpoint).events()))
    assert first is not None
    assert first.text == text
    assert first.envelope()["data"] == {"x": "ü"}
