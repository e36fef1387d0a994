"""Moving, attaching and searching as a client meets them: over HTTP and on a socket."""

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.support.servedhub import ServedHub, serve
from tests.support.socketclient import SocketClient

LINK = {"kind": "url", "value_json": {"url": "https://example.com", "title": "Example"}}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHub]:
    settings = "[hub]\nmax_retopic_batch = 3000\n"
    with serve(tmp_path_factory.mktemp("hub"), settings=settings) as running:
        yield running


@pytest.fixture
def place(hub: ServedHub, request: pytest.FixtureRequest) -> tuple[str, str, str]:
    """A channel and two of its topics."""
    channel_id = hub.channel(request.node.name[:100])
    return channel_id, hub.topic(channel_id, "a"), hub.topic(channel_id, "b")


def move(to: str, mode: str = "one", **more: object) -> dict[str, object]:
    return {"op": "move_topic", "to_topic_id": to, "mode": mode, **more}


def test_moves_over_http(hub: ServedHub, place: tuple[str, str, str]) -> None:
    channel_id, a, b = place
    ids = [hub.send(a)["message"]["id"] for _ in range(3)]
    path = f"/api/v1/messages/{ids[1]}"
    key = {"Idempotency-Key": "move"}
    done = hub.http.patch(path, move(b, "later", expected_version=1), headers=key)
    assert (done.status, set(done.body)) == (200, {"affected_count", "event_ids"})
    assert done.body["affected_count"] == 2
    again = hub.http.patch(path, move(b, "later", expected_version=1), headers=key)
    assert again.body == done.body
    assert again.headers["idempotency-replayed"] == "true"
    nothing = hub.http.patch(path, move(b, "later"))
    assert nothing.body == {"affected_count": 0, "event_ids": []}
    stale = hub.http.patch(path, move(a, expected_version=1))
    assert (stale.status, stale.body["code"]) == (409, "VERSION_CONFLICT")
    assert stale.body["current_version"] == 2
    events = hub.http.get(f"/api/v1/events?topic_id={b}&name=message.moved_topic").body["events"]
    assert [event["event_id"] for event in events] == done.body["event_ids"]
    assert events[0]["scope"] == {"channel_id": channel_id, "topic_id": a, "topic_id2": b}
    assert events[0]["data_json"] == {
        "message_id": ids[1], "old_topic_id": a, "new_topic_id": b, "channel_id": channel_id,
        "mode": "later", "version": 2, "principal": "server",
    }  # fmt: skip


def test_moves_that_are_refused(hub: ServedHub, place: tuple[str, str, str]) -> None:
    _, a, b = place
    far = hub.topic(hub.channel("far away"))
    message_id = hub.send(a)["message"]["id"]
    hub.send_many(a, ["x"] * 3000)
    path, head = f"/api/v1/messages/{message_id}", hub.head
    for command, status, code in (
        (move(far), 400, "CROSS_CHANNEL_MOVE"),
        (move("topic_none"), 404, "NOT_FOUND"),
        (move(b, "all"), 400, "INVALID_INPUT"),
        (move(b, "some"), 400, "INVALID_INPUT"),
        (move(b, expected_version=0), 400, "INVALID_INPUT"),
        (move(""), 400, "INVALID_INPUT"),
        ({"op": "move_topic", "mode": "one"}, 400, "INVALID_INPUT"),
    ):
        refused = hub.http.patch(path, command)
        assert (refused.status, refused.body["code"]) == (status, code), command
        assert refused.body["hint"] or code == "INVALID_INPUT"
    assert hub.http.patch("/api/v1/messages/msg_none", move(b)).status == 404
    assert hub.head == head


def test_a_move_reaches_every_socket_it_concerns(
    hub: ServedHub, place: tuple[str, str, str]
) -> None:
    channel_id, a, b = place
    message_id = hub.send(a)["message"]["id"]
    wanted = [{"topics": [a]}, {"topics": [b]}, {"channels": [channel_id]}, {"topics": ["other"]}]
    sockets = [SocketClient(hub.port, hub.token) for _ in wanted]
    for socket, subscriptions in zip(sockets, wanted, strict=True):
        socket.hello(hub.head, subscriptions=subscriptions)
    data = {"message_id": message_id, "to_topic_id": b, "mode": "one"}
    with SocketClient(hub.port, hub.token) as mover:
        mover.hello(hub.head, subscriptions={"channels": [], "topics": []})
        answer = mover.request("message.move", data)
    assert (answer["status"], answer["body"]["affected_count"]) == (200, 1)
    for socket in sockets[:3]:
        event = socket.recv()
        assert (event["name"], event["event_id"]) == (
            "message.moved_topic", answer["body"]["event_ids"][0],
        )  # fmt: skip
    with pytest.raises(TimeoutError):
        sockets[3].recv(0.3)
    for socket in sockets:
        socket.close()


def test_more_moves_than_a_socket_queues_all_arrive_once(
    hub: ServedHub, place: tuple[str, str, str]
) -> None:
    _, a, b = place
    first = hub.send_many(a, ["x"] * 2600)[0]["message"]["id"]
    with SocketClient(hub.port, hub.token) as socket:
        socket.hello(hub.head, subscriptions={"topics": [b]})
        done = hub.http.patch(f"/api/v1/messages/{first}", move(b, "all")).body
        assert socket.events_until(done["event_ids"][-1]) == done["event_ids"]
    assert done["affected_count"] == 2600


def test_attachments_over_http(hub: ServedHub, place: tuple[str, str, str]) -> None:
    path = f"/api/v1/topics/{place[1]}/attachments"
    added = hub.http.post(path, LINK)
    assert added.status == 201
    assert set(added.body) == {"attachment", "event_id"}
    again = hub.http.post(path, LINK)
    assert again.status == 200
    assert again.body == {**added.body, "event_id": None, "deduplicated": True}
    assert hub.http.get(path).body["attachments"] == [added.body["attachment"]]
    assert hub.http.get(f"{path}?kind=file").body == {
        "attachments": [], "has_more": False, "cursor": None,
    }  # fmt: skip
    unnamed = hub.http.post(path, {**LINK, "key": ""})
    assert (unnamed.status, unnamed.body["attachment"]) == (200, added.body["attachment"])
    assert hub.http.get("/api/v1/topics/topic_none/attachments").status == 404
    for command, code in (
        ({"kind": "url", "value_json": {"url": "javascript:alert(1)"}}, "INVALID_INPUT"),
        ({"kind": "x", "value_json": {"a": "x" * 17_000}}, "PAYLOAD_TOO_LARGE"),
        ({"kind": "", "value_json": {}}, "INVALID_INPUT"),
        ({"kind": "x", "value_json": []}, "INVALID_INPUT"),
        ({"kind": "x", "value_json": {}, "dedupe_key": ""}, "INVALID_INPUT"),
        ({"kind": "x"}, "INVALID_INPUT"),
    ):
        refused = hub.http.post(path, command)
        assert (refused.status, refused.body["code"]) == (400, code), command
    source = hub.http.post(path, {**LINK, "source_message_id": "msg_none", "dedupe_key": "d"})
    assert source.status == 404


def test_attachments_on_a_socket(hub: ServedHub, place: tuple[str, str, str]) -> None:
    with SocketClient(hub.port, hub.token) as socket:
        socket.hello(hub.head)
        data = {**LINK, "topic_id": place[1]}
        added = socket.request("attachment.add", data, idempotency_key="once")
        assert added["status"] == 201
        replayed = socket.request("attachment.add", data, idempotency_key="once")
        assert replayed["replayed"] is True
        assert replayed["body"] == added["body"]
        again = socket.request("attachment.add", data)
        assert (again["status"], again["body"]["event_id"]) == (200, None)
        deep: object = {}
        for _ in range(5000):
            deep = [deep]
        raw = json.dumps({"x": "@"}).replace('"@"', "[" * 5000 + "]" * 5000)
        frame = json.dumps(
            {"type": "request", "id": 9, "op": "attachment.add",
             "data": {"topic_id": place[1], "kind": "x", "value_json": "@"}}
        ).replace('"@"', raw)  # fmt: skip
        socket.send(frame.encode())
        answer = socket.until(lambda message: message["type"] != "event")[-1]
        assert answer.get("status", 400) == 400
        assert socket.request("attachment.add", data)["status"] == 200, "and it goes on"


def test_search_over_http(hub: ServedHub, place: tuple[str, str, str]) -> None:
    channel_id, a, _ = place
    sent = [hub.send(a, f"searchable word{number}")["message"] for number in range(3)]
    reply = hub.http.get(f"/api/v1/search?q=searchable&topic_id={a}&limit=2").body
    assert (reply["fts_used"], reply["has_more"], len(reply["messages"])) == (True, True, 2)
    one = hub.http.get(f"/api/v1/search?q={quote('searchable word1')}&channel_id={channel_id}")
    assert one.body["messages"] == [{**sent[1], "snippet": "searchable word1"}]
    assert hub.http.get("/api/v1/search?q=searchable&sender=nobody").body["messages"] == []


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ('q="a', "INVALID_INPUT"), ("q=a OR", "INVALID_INPUT"), ("q=%20", "INVALID_INPUT"),
        ("q=", "INVALID_INPUT"), ("", "INVALID_INPUT"), ("q=a&limit=0", "INVALID_INPUT"),
        ("q=a&before=soon", "INVALID_INPUT"), ("q=a&other=1", "INVALID_INPUT"),
        ("q=%00", "INVALID_INPUT"), ("q=%ff", "INVALID_INPUT"),
        ("q=" + "x" * 1001, "INVALID_INPUT"),
    ],
)  # fmt: skip
def test_a_hostile_search_is_400(hub: ServedHub, query: str, code: str) -> None:
    path = "/api/v1/search?" + quote(query, safe="=&%")
    answer = hub.http.get(path)
    assert (answer.status, answer.body["code"]) == (400, code)


@pytest.mark.parametrize(
    "q",
    ["'; DROP TABLE messages; --", "NEAR(a b)", "content_raw:a", "a*", "^a", "{a}:b", "a NOT b"],
)
def test_operators_of_sqlite_are_text(hub: ServedHub, q: str) -> None:
    answer = hub.http.get("/api/v1/search?q=" + quote(q))
    assert (answer.status, answer.body["messages"]) == (200, [])


def test_an_unknown_place_is_404(hub: ServedHub) -> None:
    for where in ("topic_id=topic_none", "channel_id=ch_none"):
        assert hub.http.get(f"/api/v1/search?q=a&{where}").status == 404
