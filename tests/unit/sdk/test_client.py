"""Both SDK clients through everything that a hub can do to them."""

from pathlib import Path
from typing import Any

import pytest
from websockets.sync.server import ServerConnection

from appliance.kernel.errors import ApplianceError
from appliance.sdk import errors
from appliance.sdk.client import Client
from appliance.sdk.cursor import BadCursorFile, Cursor, FileCursor
from appliance.sdk.http import Retry
from appliance.sdk.stream_follower import NewHistory, TokenRefused
from appliance.sdk.target import OtherDatabase, ProtocolUnknown
from tests.support.faulty_hub import FakeHttp, event, hello, http_hub, say, stream_hub

pytestmark = pytest.mark.usefixtures("hurry")

HEALTH = (200, {}, {"status": "ok", "db_id": "db", "protocol_version": "v1"})
QUICK = Retry(attempts_max=3, wait_seconds_max=5.0)


def ok(socket: ServerConnection, until: int = 0, epoch: str = "e1", instance: str = "i") -> Any:
    received = hello(socket)
    say(socket, type="hello_ok", replay_until=until, instance_id=instance, epoch=epoch)
    return received


# -- events ----------------------------------------------------------------------------------


def test_consumer_gets_each_event_once_despite_reconnects(flavour) -> None:
    callbacks: list[Any] = []
    hellos = []

    def first(socket: ServerConnection) -> None:
        hellos.append(ok(socket, instance="one"))
        for number in (1, 2, 2, 1, 3):
            event(socket, number)
        socket.close(1011)

    def second(socket: ServerConnection) -> None:
        hellos.append(ok(socket, until=3, instance="two"))
        for number in (3, 4):
            event(socket, number)
        socket.recv()

    handlers = {
        "disconnect": lambda why: callbacks.append(("disconnect", why)),
        "reconnect": lambda after: callbacks.append(("reconnect", after)),
    }
    with stream_hub(first, second) as endpoint:
        events = flavour.take(
            4, url=endpoint.url, handlers=handlers, subscriptions={"channels": ["a"]}
        )
    assert [each.event_id for each in events] == [1, 2, 3, 4]
    assert events[0].data == {"n": 1}
    assert [each["after_event_id"] for each in hellos] == [0, 3]
    assert hellos[1]["epoch"] == "e1"
    assert hellos[0]["subscriptions"] == {"channels": ["a"]}
    assert callbacks == [("disconnect", "connection closed (1011)"), ("reconnect", 3)]


def _full(*_: Any) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("whose", ["disconnect", "reconnect", "on_new_history"])
def test_callback_exception_propagates_to_caller(flavour, whose) -> None:
    """Their OSError looks like one of the socket's; it must not cause a reconnect."""

    def first(socket: ServerConnection) -> None:
        ok(socket)
        event(socket, 1)
        socket.close(1011)

    def second(socket: ServerConnection) -> None:
        ok(socket, until=1, epoch="e2" if whose == "on_new_history" else "e1")
        event(socket, 2)
        socket.recv()

    given: dict[str, Any] = {"handlers": {whose: _full}}
    if whose == "on_new_history":
        given = {whose: _full}
    with stream_hub(first, second, second) as endpoint, pytest.raises(OSError, match="No space"):
        flavour.take(2, url=endpoint.url, **given)


@pytest.mark.parametrize("restart", [0, "newest"])
@pytest.mark.parametrize("sign", ["error", "hello_ok", "shorter"])
def test_new_epoch_calls_the_callback(flavour, sign, restart) -> None:
    hellos, histories = [], []

    epoch = "e1" if sign == "shorter" else "e2"

    def restored(socket: ServerConnection) -> None:
        hellos.append(hello(socket))
        if sign == "error":
            say(socket, type="error", code="EPOCH_CHANGED", error="x", epoch="e2", replay_until=9)
        say(socket, type="hello_ok", replay_until=9, instance_id="i", epoch=epoch)
        socket.recv()

    def second(socket: ServerConnection) -> None:
        hellos.append(ok(socket, until=9, epoch=epoch))
        event(socket, 10)
        socket.recv()

    def decide(history: NewHistory) -> int:
        histories.append(history)
        return history.newest if restart == "newest" else 0

    with stream_hub(restored, second) as endpoint:
        events = flavour.take(
            1, url=endpoint.url, after_event_id=50, epoch="e1", on_new_history=decide
        )
    assert [each.event_id for each in events] == [10]
    assert hellos[1]["after_event_id"] == (9 if restart == "newest" else 0)
    assert [(each.newest, each.after) for each in histories] == [(9, 50)]


def test_token_refused_twice_is_an_error(flavour) -> None:
    def refuses(socket: ServerConnection) -> None:
        socket.close(4401)

    errors: list[Exception] = []
    with stream_hub(refuses, refuses) as endpoint, pytest.raises(TokenRefused):
        flavour.take(1, url=endpoint.url, token="x", handlers={"error": errors.append})
    assert [type(each) for each in errors] == [TokenRefused]


# -- the cursor ------------------------------------------------------------------------------


def three(socket: ServerConnection) -> None:
    received = ok(socket, until=3)
    for number in range(received["after_event_id"] + 1, 4):
        event(socket, number)
    socket.recv()


def test_the_cursor_is_stored_once_the_next_event_is_requested(flavour, tmp_path: Path) -> None:
    path = tmp_path / "cursor"
    with stream_hub(three, three, three) as endpoint:
        flavour.take(2, url=endpoint.url, cursor=FileCursor(path))
        assert FileCursor(path).load() == Cursor(1, "e1")  # 2 was taken, nobody asked for 3
        second = flavour.take(1, url=endpoint.url, cursor=FileCursor(path))
        assert [each.event_id for each in second] == [2]
        assert path.stat().st_size < 100


def test_damaged_cursor_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "cursor").write_text("{")
    with pytest.raises(BadCursorFile):
        Client(url="http://127.0.0.1:1", cursor=FileCursor(tmp_path / "cursor"))


# -- requests --------------------------------------------------------------------------------


def call(flavour: Any, script: list[Any], verb: str, *values: Any, **more: Any) -> Any:
    fake = FakeHttp(HEALTH, *script)
    with http_hub(fake) as endpoint:
        try:
            result = flavour.call(
                verb, *values, arguments={"url": endpoint.url, "retry": QUICK}, **more
            )
        except ApplianceError as error:
            result = error
    return result, [each for each in fake.requests if each["path"] != "/health"]


@pytest.mark.parametrize(
    ("status", "code", "kind", "attempts"),
    [
        (400, "INVALID_INPUT", errors.InvalidInput, 1),
        (400, "PAYLOAD_TOO_LARGE", errors.PayloadTooLarge, 1),
        (400, "CROSS_CHANNEL_MOVE", errors.CrossChannelMove, 1),
        (403, "FORBIDDEN", errors.NotAllowed, 1),
        (404, "NOT_FOUND", errors.NotFound, 1),
        (409, "ALREADY_EXISTS", errors.AlreadyExists, 1),
        (422, "IDEMPOTENCY_KEY_REUSED", errors.KeyReused, 1),
        (429, "RATE_LIMITED", errors.RateLimited, 3),
        (503, "SERVICE_UNAVAILABLE", errors.HubBusy, 3),
        (503, "STORAGE_FULL", errors.StorageFull, 3),
        (503, "A_NEW_CODE", errors.HubBusy, 3),
        (418, "A_NEW_CODE", errors.Refused, 1),
        (500, "INTERNAL_ERROR", errors.Refused, 1),
    ],
)
def test_errors_have_classes_and_retries_are_limited(flavour, status, code, kind, attempts) -> None:
    headers = {"Retry-After": "0"} if attempts > 1 else {}
    answer = (status, headers, {"error": "no", "code": code, "hint": "h"})
    error, requests = call(flavour, [answer], "send_message", "t", "s", "x")
    assert type(error) is kind
    assert (error.code, error.message, error.hint, error.http_status) == (code, "no", "h", status)
    assert len(requests) == attempts


@pytest.mark.parametrize("version", ["v2", "v10.1", "later"])
def test_another_protocol_version_is_refused(flavour, version) -> None:
    health = (200, {}, {**HEALTH[2], "protocol_version": version})
    with http_hub(FakeHttp(health)) as endpoint, pytest.raises(ProtocolUnknown, match=version):
        flavour.call("connect", arguments={"url": endpoint.url})


def test_other_database_at_the_same_address_is_refused() -> None:
    other = (200, {}, {**HEALTH[2], "db_id": "other"})
    with http_hub(FakeHttp(HEALTH, other)) as endpoint:
        client = Client(url=endpoint.url).connect()
        with pytest.raises(OtherDatabase):
            client.connect()


def test_token_is_not_in_any_repr() -> None:
    client = Client(url="http://127.0.0.1:1", token="very-secret")
    assert "very-secret" not in repr(client) + repr(client.target)
