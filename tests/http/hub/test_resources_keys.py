"""Idempotency-Key on every mutation over a real connection (decision 26)."""

import pytest


def keyed(hub, key, method, path, command, client=None):
    return (client or hub.http)(method, path, command, headers={"Idempotency-Key": key})


def message(ids, content="x"):
    return {"topic_id": ids[1], "sender": "s", "content_raw": content}


def mutations(hub, ids):
    """(method, path, body, another body) of every mutation of one thing."""
    message_id = hub.send(ids[1])["message"]["id"]
    deleted_id = hub.send(ids[1])["message"]["id"]
    title = f"of {message_id}"
    return {
        "channel": ("POST", "/api/v1/channels", {"name": title}, {"name": "other"}),
        "topic": (
            "POST", "/api/v1/topics",
            {"channel_id": ids[0], "title": title}, {"channel_id": ids[0], "title": "other"},
        ),
        "rename": ("PATCH", f"/api/v1/topics/{ids[1]}", {"title": title + "!"}, {"title": "o"}),
        "message": ("POST", "/api/v1/messages", message(ids), message(ids, "other")),
        "edit": (
            "PATCH", f"/api/v1/messages/{message_id}",
            {"op": "edit", "content_raw": "y", "expected_version": 1},
            {"op": "edit", "content_raw": "z", "expected_version": 1},
        ),
        "delete": (
            "PATCH", f"/api/v1/messages/{deleted_id}",
            {"op": "delete", "actor": "a"}, {"op": "delete", "actor": "b"},
        ),
    }  # fmt: skip


@pytest.mark.parametrize("what", ["channel", "topic", "rename", "message", "edit", "delete"])
def test_replayed_response_is_byte_for_byte_the_first(hub, ids, what):
    method, path, command, other = mutations(hub, ids)[what]
    key = f"key-{what}"
    first = keyed(hub, key, method, path, command)
    assert first.status in (200, 201)
    assert "idempotency-replayed" not in first.headers
    head = hub.head
    for _ in range(3):
        repeated = keyed(hub, key, method, path, command)
        assert (repeated.status, repeated.raw) == (first.status, first.raw)
        assert repeated.headers["idempotency-replayed"] == "true"
    spelled = {name: command[name] for name in reversed(command)}
    assert keyed(hub, key, method, path, spelled).raw == first.raw, "order of fields is nothing"
    refused = keyed(hub, key, method, path, other)
    assert (refused.status, refused.body["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert hub.head == head


def test_a_refused_request_does_not_use_up_its_key(hub, ids):
    missing = {**message(ids), "topic_id": "topic_nowhere"}
    assert keyed(hub, "retry", "POST", "/api/v1/messages", missing).status == 404
    assert keyed(hub, "retry", "POST", "/api/v1/messages", {"topic_id": 1}).status == 400
    assert keyed(hub, "retry", "POST", "/api/v1/messages", message(ids)).status == 201
    assert keyed(hub, "retry", "POST", "/api/v1/messages", missing).status == 422


def test_key_in_the_header_of_a_batch_applies_to_all_items(hub, ids):
    items = [message(ids, f"batch {n}") for n in range(5)]
    items[2] = {**items[2], "topic_id": "topic_nowhere"}
    path, command = "/api/v1/messages/batch", {"messages": items}
    first = keyed(hub, "whole", "POST", path, command)
    head = hub.head
    repeated = keyed(hub, "whole", "POST", path, command)
    results = repeated.body["results"]
    replayed = [result.pop("replayed", None) for result in results]
    assert replayed == [True, True, None, True, True]
    assert results == first.body["results"]
    assert hub.head == head
    for answer in (first, repeated):
        assert "idempotency-replayed" not in answer.headers, "one item was refused, not answered"
    good = {"messages": items[:2]}
    assert keyed(hub, "whole", "POST", path, good).headers["idempotency-replayed"] == "true"
    other = keyed(hub, "whole", "POST", path, {"messages": [message(ids, "changed")]})
    assert other.body["results"][0]["code"] == "IDEMPOTENCY_KEY_REUSED"
    assert hub.head == head


def test_invalid_item_is_refused_alone(hub, ids):
    good = message(ids, "good")
    wrong = [
        None, 7, "text", [], {}, {**good, "sender": None}, {**good, "content_raw": 1},
        {**good, "topic_id": "a b"}, {**good, "sender": ""}, {**good, "idempotency_key": ""},
        {**good, "sender": "a\0b"},
    ]  # fmt: skip
    head = hub.head
    items = [part for item in wrong for part in (item, good)]
    answer = hub.http.post("/api/v1/messages/batch", {"messages": items})
    assert answer.status == 200
    results = answer.body["results"]
    assert [result.get("code") for result in results] == ["INVALID_INPUT", None] * len(wrong)
    assert hub.head == head + len(wrong)
    assert all({"error", "code", "details", "hint"} <= set(item) for item in results[::2])
    assert [item["details"]["field"] for item in results[10:12:2]] == ["sender"]
    for raw in (b'{"messages": {}}', b'{"messages": [}', b'{"messages": [{"sender": "\xff"}]}'):
        assert hub.http.post("/api/v1/messages/batch", raw=raw).status == 400, "the whole"
    assert hub.head == head + len(wrong)
