"""Moves of messages to other topics over HTTP."""

from tests.support.servedhub import ServedHub


def move(to: str, mode: str = "one", **more: object) -> dict[str, object]:
    return {"op": "move_topic", "to_topic_id": to, "mode": mode, **more}


def test_move_is_repeated_by_key_and_reports_its_messages(
    hub: ServedHub, ids: tuple[str, str]
) -> None:
    channel_id, a = ids
    b = hub.topic(channel_id, "b")
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
