"""Following a stream through everything that can happen to it."""

import subprocess
import sys
import threading
from typing import Any

import pytest
from websockets.sync.server import ServerConnection

from appliance.sdk.discovery import Endpoint, HubNotRunning
from appliance.sdk.listen import Follower, Subscription
from appliance.sdk.stream_follower import Rejected, StreamBroken, TokenRefused
from tests.support.fakehub import event, hello, say, stream_hub


class _Watch:
    """Keeps what a follower said and how long it would have waited."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.pauses: list[float] = []

    def follower(self, endpoint: Endpoint, **more: Any) -> Follower:
        return Follower(lambda: endpoint, say=self.said.append, pause=self.pauses.append, **more)


def _numbers(follower: Follower, count: int) -> list[int]:
    found: list[int] = []
    for each in follower.events():
        assert each is not None
        found.append(each.event_id)
        if len(found) == count:
            break
    return found


def _ok(socket: ServerConnection, until: int = 0, epoch: str = "e1") -> dict[str, Any]:
    received = hello(socket)
    say(socket, type="hello_ok", replay_until=until, instance_id="i", epoch=epoch)
    return received


def test_what_the_socket_says_of_its_troubles_is_not_on_standard_error() -> None:
    """A connection cut while the consumer was slow ends with a traceback in that log."""
    program = (
        "from appliance.sdk.stream_follower import socket_options\n"
        "from appliance.sdk.discovery import Endpoint\n"
        "socket_options(Endpoint('127.0.0.1', 1))['logger'].error('keepalive ping failed')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""


def test_break_is_resumed_after_the_last_event_and_repeats_are_dropped() -> None:
    hellos = []

    def first(socket: ServerConnection) -> None:
        hellos.append(_ok(socket))
        for number in (1, 2, 2, 1, 3):
            event(socket, number)
        socket.close(1011)

    def second(socket: ServerConnection) -> None:
        hellos.append(_ok(socket, until=3))
        for number in (2, 3, 4, 7):
            event(socket, number)
        socket.recv()

    watch = _Watch()
    with stream_hub(first, second) as endpoint:
        subscription = Subscription(("general",), ("topic_1",))
        follower = watch.follower(endpoint, subscription=subscription)
        assert _numbers(follower, 5) == [1, 2, 3, 4, 7]
    assert [each["after_event_id"] for each in hellos] == [0, 3]
    assert hellos[0]["subscriptions"] == {"channels": ["general"], "topics": ["topic_1"]}
    assert hellos[1]["epoch"] == "e1"
    assert len(watch.pauses) == 1


def test_nothing_named_means_everything() -> None:
    hellos = []

    def part(socket: ServerConnection) -> None:
        hellos.append(_ok(socket))
        event(socket, 1)
        socket.recv()

    with stream_hub(part) as endpoint:
        _numbers(_Watch().follower(endpoint), 1)
    assert "subscriptions" not in hellos[0]


def test_waits_double_up_to_the_longest_and_start_over_after_an_event() -> None:
    def broken(socket: ServerConnection) -> None:
        _ok(socket)
        socket.close(1011)

    def works(socket: ServerConnection) -> None:
        _ok(socket)
        event(socket, 1)
        socket.close(1011)

    def last(socket: ServerConnection) -> None:
        _ok(socket, until=1)
        event(socket, 2)
        socket.recv()

    watch = _Watch()
    with stream_hub(*[broken] * 7, works, last) as endpoint:
        assert _numbers(watch.follower(endpoint), 2) == [1, 2]
    expected = [1, 2, 4, 8, 16, 30, 30, 1]
    assert len(watch.pauses) == len(expected)
    for pause, middle in zip(watch.pauses, expected, strict=True):
        assert middle * 0.75 <= pause <= middle * 1.25


def test_going_away_is_given_five_seconds() -> None:
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


def test_normal_close_is_the_end() -> None:
    def part(socket: ServerConnection) -> None:
        _ok(socket)
        event(socket, 1)
        socket.close(1000)

    with stream_hub(part) as endpoint:
        events = list(_Watch().follower(endpoint).events())
    assert [each.event_id for each in events if each] == [1]


def test_cursor_from_the_future_starts_over() -> None:
    hellos = []

    def behind(socket: ServerConnection) -> None:
        hellos.append(_ok(socket, until=50))
        socket.recv()

    def again(socket: ServerConnection) -> None:
        hellos.append(_ok(socket, until=50))
        event(socket, 1)
        socket.recv()

    watch = _Watch()
    with stream_hub(behind, again) as endpoint:
        assert _numbers(watch.follower(endpoint, after=100), 1) == [1]
    assert [each["after_event_id"] for each in hellos] == [100, 0]
    assert watch.pauses == []
    assert "starting from the beginning" in watch.said[0]


@pytest.mark.parametrize("told", ["error", "hello_ok"])
def test_other_epoch_starts_over(told: str) -> None:
    hellos = []

    def restored(socket: ServerConnection) -> None:
        hellos.append(hello(socket))
        if told == "error":
            say(socket, type="error", code="EPOCH_CHANGED", error="x", epoch="e2", replay_until=9)
        say(socket, type="hello_ok", replay_until=9, instance_id="i", epoch="e2")
        socket.recv()

    def again(socket: ServerConnection) -> None:
        hellos.append(_ok(socket, until=9, epoch="e2"))
        event(socket, 1)
        socket.recv()

    watch = _Watch()
    with stream_hub(restored, again) as endpoint:
        follower = watch.follower(endpoint, after=5, epoch="e1")
        assert _numbers(follower, 1) == [1]
    assert hellos[1]["after_event_id"] == 0
    assert hellos[1]["epoch"] == follower.epoch == "e2"


def test_history_that_keeps_changing_is_not_asked_in_a_hurry() -> None:
    def mad(socket: ServerConnection) -> None:
        hello(socket)
        say(socket, type="error", code="EPOCH_CHANGED", error="x", epoch="?", replay_until=0)
        socket.recv()

    def sane(socket: ServerConnection) -> None:
        _ok(socket, epoch="?")
        event(socket, 1)
        socket.recv()

    watch = _Watch()
    with stream_hub(*[mad] * 5, sane) as endpoint:
        assert _numbers(watch.follower(endpoint, epoch="e1"), 1) == [1]
    assert len(watch.pauses) >= 2


def test_token_is_read_again_once_and_then_it_is_final() -> None:
    def refuses(socket: ServerConnection) -> None:
        socket.close(4401, "who?")

    watch = _Watch()
    with stream_hub(refuses, refuses, refuses) as endpoint, pytest.raises(TokenRefused):
        _numbers(watch.follower(endpoint), 1)
    assert watch.pauses == [0.0]


def test_changed_token_is_found() -> None:
    def refuses(socket: ServerConnection) -> None:
        socket.close(4401, "who?")

    def accepts(socket: ServerConnection) -> None:
        assert socket.request is not None
        assert socket.request.headers["Authorization"] == "Bearer new"
        _ok(socket)
        event(socket, 1)
        socket.recv()

    with stream_hub(refuses, accepts) as endpoint:
        tokens = ["old", "new"]
        follower = Follower(
            lambda: Endpoint(endpoint.host, endpoint.port, token=tokens.pop(0)),
            pause=lambda _: None,
        )
        assert _numbers(follower, 1) == [1]


def test_first_connection_must_work_unless_insisting() -> None:
    nobody = Endpoint("127.0.0.1", 1)
    with pytest.raises(HubNotRunning):
        _numbers(_Watch().follower(nobody), 1)

    def part(socket: ServerConnection) -> None:
        _ok(socket)
        event(socket, 1)
        socket.recv()

    with stream_hub(part) as endpoint:
        places = [nobody, nobody, endpoint]
        follower = Follower(lambda: places.pop(0), pause=lambda _: None, insist=True)
        assert _numbers(follower, 1) == [1]


def test_refused_hello_is_final() -> None:
    def part(socket: ServerConnection) -> None:
        hello(socket)
        say(socket, type="error", code="INVALID_INPUT", error="too many topics")
        socket.recv()

    with stream_hub(part) as endpoint, pytest.raises(Rejected, match="too many topics"):
        _numbers(_Watch().follower(endpoint), 1)


def test_stranger_who_speaks_no_json_is_no_hub() -> None:
    def part(socket: ServerConnection) -> None:
        hello(socket)
        socket.send("good day")
        socket.recv()

    with stream_hub(part) as endpoint, pytest.raises(StreamBroken):
        _numbers(_Watch().follower(endpoint), 1)


def test_unknown_frames_are_ignored_and_envelopes_come_through_untouched() -> None:
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


def test_quiet_stream_yields_nothing_now_and_then() -> None:
    release = threading.Event()

    def part(socket: ServerConnection) -> None:
        _ok(socket)
        release.wait(10)
        event(socket, 1)
        socket.recv()

    with stream_hub(part) as endpoint:
        events = _Watch().follower(endpoint).events(idle_seconds=0.01)
        assert next(events) is None
        release.set()
        assert next(each for each in events if each is not None).event_id == 1
