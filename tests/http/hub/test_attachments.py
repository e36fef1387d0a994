"""Attachments as a client adds and lists them: over HTTP and on a socket."""

from tests.support.servedhub import ServedHub

LINK = {"kind": "url", "value_json": {"url": "https://example.com", "title": "Example"}}


def test_attachment_is_added_once_and_listed_over_http(
    hub: ServedHub, channel_and_topics: tuple[str, str, str]
) -> None:
    path = f"/api/v1/topics/{channel_and_topics[1]}/attachments"
    added = hub.http.post(path, LINK)
    assert added.status == 201
    assert set(added.body) == {"attachment", "event_id"}
    repeated = hub.http.post(path, LINK)
    assert repeated.status == 200
    assert repeated.body == {**added.body, "event_id": None, "deduplicated": True}
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
