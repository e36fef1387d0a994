"""Moves of messages to other topics: over HTTP and on a socket."""

from collections.abc import Iterator

import pytest

from tests.support.servedhub import ServedHub, serve
from tests.support.socketclient import SocketClient


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHub]:
    settings = "[hub]\nmax_retopic_batch = 3000\n"
    with serve(tmp_path_factory.mktemp("hub"), settings=settings) as running:
        yield running


def move(to: str, mode: str = "one", **more: object) -> dict[str, object]:
    return {"op": "move_topic", "to_topic_id": to, "mode": mode, **more}


def test_move_is_repeated_by_key_and_reports_its_messages(
    hub: ServedHub, channel_and_topics: tuple[str, str, str]
) -> None:
    channel_id, a, b = channel_and_topics
    message_ids = [hub.send(a)["message"]["id"] for _ in range(3)]
    path = f"/api/v1/messages/{message_ids[1]}"
    key = {"Idempotency-Key": "move"}
    done = hub.http.patch(path, move(b, "later", expected_version=1), headers=key)
    assert (done.status, set(done.body)) == (200, {"affected_count", "event_ids"})
    assert done.body["affected_count"] == 2
    repeated = hub.http.patch(path, move(b, "later", expected_version=1), headers=key)
    assert repeated.body == done.body
    assert repeated.headers["idempotency-replayed"] == "true"
    nothing = hub.http.patch(path, move(b, "later"))
    assert nothing.body == {"affected_count": 0, "event_ids": []}
    stale = hub.http.patch(path, move(a, expected_version=1))
    assert (stale.status, stale.body["code"]) == (409, "VERSION_CONFLICT")
    assert stale.body["current_version"] == 2
    events = hub.http.get(f"/api/v1/events?topic_id={b}&name=message.moved_topic").body["events"]
    assert [event["event_id"] for event in events] == done.body["event_ids"]
    assert events[0]["scope"] == {"channel_id": channel_id, "topic_id": a, "topic_id2": b}
    assert events[0]["data_json"] == {
        "message_id": message_ids[1], "old_topic_id": a, "new_topic_id": b,
        "channel_id": channel_id, "mode": "later", "version": 2, "principal": "server",
    }  # fmt: skip


def test_invalid_moves_are_refused_without_events(
    hub: ServedHub, channel_and_topics: tuple[str, str, str]
) -> None:
    _, a, b = channel_and_topics
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


def test_move_is_sent_to_sockets_of_both_topics_and_the_channel(
    hub: ServedHub, channel_and_topics: tuple[str, str, str]
) -> None:
    channel_id, a, b = channel_and_topics
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
