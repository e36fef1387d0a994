"""The first frame: its filter, its cursor, and which frames are refused."""

import json

import pytest

from tests.support.socketclient import BINARY, SocketClient, frame, text


def test_hello_ok_has_the_instance_and_the_end_of_the_log(hub, connect):
    hello = connect().hello(hub.head)
    health = hub.http.get("/health").body
    assert hello == {
        "type": "hello_ok",
        "replay_until": hub.head,
        "latest_event_id": hub.head,
        "instance_id": health["instance_id"],
        "epoch": health["epoch"],
        "protocol_version": "v1",
    }


def test_empty_subscriptions_select_nothing(hub, connect, ids):
    everything, nothing, empty = connect(), connect(), connect()
    for client, more in ((everything, {}), (nothing, {"subscriptions": {}})):
        client.hello(hub.head, **more)
    empty.hello(0, subscriptions={"channels": [], "topics": []})
    event_id = hub.send(ids[1])["event_id"]
    assert everything.recv()["event_id"] == event_id
    for client in (nothing, empty):
        made = client.request("message.create", message(ids[1]))
        assert made["status"] == 201, "its own answer comes, and no event before it"
        with pytest.raises(TimeoutError):
            client.recv(seconds=0.1)


def message(topic_id, content="x"):
    return {"topic_id": topic_id, "sender": "s", "content_raw": content}


def test_subscription_selects_channels_and_topics(hub, connect, ids):
    channel_id, topic_id = ids
    name = hub.rows("SELECT name FROM channels WHERE id = ?", channel_id)[0][0]
    other = hub.topic(hub.channel(f"other than {name}"))
    subscriptions = {"channels": [channel_id, name], "topics": [topic_id]}
    hub.send(other)
    before = hub.send(topic_id)["event_id"]
    client = connect()
    client.hello(0, subscriptions=subscriptions)
    hub.send(other)
    after = hub.send(topic_id)["event_id"]
    sql = "SELECT event_id FROM events WHERE scope_channel_id = ? ORDER BY event_id"
    expected = [row[0] for row in hub.rows(sql, channel_id)]
    assert expected[-2:] == [before, after]
    assert client.events_until(after) == expected


def test_cursor_beyond_the_head_receives_new_events(hub, connect, ids):
    client = connect()
    hello = client.hello(10**9)
    assert hello["replay_until"] < 10**9
    event_id = hub.send(ids[1])["event_id"]
    assert client.recv()["event_id"] == event_id


def test_other_epoch_is_reported_before_hello_ok(hub, connect):
    client = connect()
    error = client.hello(3, epoch="of a former database")
    epoch = hub.http.get("/health").body["epoch"]
    assert (error["type"], error["code"], error["epoch"]) == ("error", "EPOCH_CHANGED", epoch)
    assert error["replay_until"] == hub.head
    assert client.recv()["type"] == "hello_ok"


def test_unknown_fields_are_ignored(hub, connect):
    more = {"later": {"x": [1]}, "subscriptions": {"channels": [], "moods": ["good"]}}
    assert connect().hello(hub.head, **more)["type"] == "hello_ok"


RUBBISH = {
    "not JSON": b"hello",
    "null": b"null",
    "another type": b'{"type": "request", "id": 1, "op": "message.create"}',
    "an exotic type": json.dumps({"type": "é\u2028" * 300}, ensure_ascii=False).encode(),
    "a cursor below zero": b'{"type": "hello", "after_event_id": -1}',
    "a cursor beyond 64 bits": b'{"type": "hello", "after_event_id": 9223372036854775808}',
    "subscriptions as a list": b'{"type": "hello", "subscriptions": ["x"]}',
    "an empty reference": b'{"type": "hello", "subscriptions": {"topics": [""]}}',
    "invalid UTF-8": b'{"type": "hello", "epoch": "\xff\xfe"}',
    "a lone surrogate": b'{"type": "hello", "epoch": "\\ud800"}',
    "a deep nest": b"[" * 100_000,
}


@pytest.mark.parametrize("name", RUBBISH)
def test_invalid_hello_gets_an_error_and_a_close(connect, name):
    client = connect()
    client.sock.sendall(text(RUBBISH[name]))
    reply = client.recv()
    assert (reply["type"], reply["code"]) == ("error", "INVALID_INPUT")
    assert reply["hint"]
    assert client.close_code() == 1008


def test_a_binary_frame_is_refused(connect):
    client = connect()
    client.sock.sendall(frame(BINARY, b'{"type": "hello"}'))
    assert client.close_code() == 1008


def test_hello_in_the_packet_of_the_upgrade_is_accepted(hub, ids):
    hello = {"type": "hello", "after_event_id": hub.head}
    request = {"type": "request", "id": "a", "op": "message.create", "data": message(ids[1])}
    first = text(hello) + text(request)
    with SocketClient(hub.port, hub.token, first=first) as client:
        assert client.recv()["type"] == "hello_ok", "before any answer"
        kinds = {client.recv()["type"], client.recv()["type"]}
        assert kinds == {"response", "event"}
