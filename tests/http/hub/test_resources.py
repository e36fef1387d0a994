"""The hub over a real connection: nouns and verbs, versions, paging, what comes back unchanged."""

import json

import pytest

from appliance.hub.text import plain_name
from tests.support.servedhub import serve

HOSTILE = [
    "'; DROP TABLE messages; --",
    '"; DELETE FROM events; --',
    "%_\\%' OR '1'='1",
    "? :name @x $y #{z} {{t}} ${u} %s",
    "line\r\nbreak\ttab\u2028\u2029\u0001\u001f\u007f",
    "\u202eright to left\ufeff \ud7ff\ue000\U0010ffff",
    "<script>alert(1)</script>&amp;",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 é e\u0301 日本語",
]


def patch(hub, message_id, **command):
    return hub.http.patch(f"/api/v1/messages/{message_id}", command)


def stored(hub, message_id):
    row = hub.rows(
        "SELECT id, topic_id, channel_id, sender, content_raw, version, created_at, edited_at,"
        " deleted_at, deleted_by, principal FROM messages"
        " JOIN x_message_principals ON message_id = id WHERE id = ?",
        message_id,
    )[0]
    names = (
        "id topic_id channel_id sender content_raw version created_at edited_at deleted_at"
        " deleted_by principal"
    )
    return dict(zip(names.split(), row, strict=True))


def test_health_identifies_the_hub(hub):
    answer = hub.connect(token=None).get("/health")
    assert answer.status == 200
    assert answer.body["status"] == "ok"
    assert answer.body["protocol_version"] == "v1"
    assert answer.body["ok"] is True  # as the courier's clients know it
    assert isinstance(answer.body["features"], list)
    assert answer.body["schema_version"] == 1
    assert answer.body["instance_id"] == answer.headers["x-instance-id"]
    assert answer.body["db_id"] == hub.rows("SELECT value FROM meta WHERE key = 'db_id'")[0][0]


def test_empty_workspace_has_the_schema_of_the_specification(tmp_path):
    with serve(tmp_path) as hub:
        names = {row[0] for row in hub.rows("SELECT name FROM sqlite_schema")}
        tables = "meta channels topics messages events topic_attachments enrichments"
        assert names >= set(tables.split())
        assert names >= {"prevent_message_delete", "prevent_event_mutation", "prevent_event_delete"}
        meta = dict(hub.rows("SELECT key, value FROM meta"))
        assert meta["schema_version"] == "1"
        assert len(meta["db_id"]) == 36
        assert meta["created_at"].endswith("Z")
        assert hub.rows("PRAGMA journal_mode") == [("wal",)]
        assert hub.rows("SELECT count(*) FROM events") == [(0,)], "starting is not an event"
        assert hub.http.get("/api/v1/channels").body == {"channels": [], "has_more": False}
        assert hub.http.get("/api/v1/events").body["events"] == []


def test_created_channels_and_topics_are_listed(hub):
    made = hub.http.post("/api/v1/channels", {"name": "zoo", "description": "animals"})
    assert made.status == 201
    channel = made.body["channel"]
    assert (channel["name"], channel["description"]) == ("zoo", "animals")
    assert channel in hub.http.get("/api/v1/channels").body["channels"]
    topics = [
        hub.http.post("/api/v1/topics", {"channel_id": channel["id"], "title": title}).body["topic"]
        for title in ("lions", "bears", "owls")
    ]
    path = f"/api/v1/channels/{channel['id']}/topics"
    assert hub.http.get(path).body["topics"] == topics[::-1], "the newest activity first"
    hub.send(topics[0]["id"])
    assert hub.http.get(path).body["topics"][0]["id"] == topics[0]["id"]
    pages, before = [], ""
    while not pages or pages[-1]["has_more"]:
        pages.append(hub.http.get(f"{path}?limit=1{before}").body)
        before = f"&before_id={pages[-1]['topics'][0]['id']}"
    assert [page["topics"][0]["title"] for page in pages] == ["lions", "owls", "bears"]
    other = hub.topic(hub.channel("beside zoo"), "fish")
    first = hub.http.get("/api/v1/topics?limit=1").body
    assert [topic["id"] for topic in first["topics"]] == [other]
    second = hub.http.get(f"/api/v1/topics?limit=3&before_id={other}").body
    assert [topic["title"] for topic in second["topics"]] == ["lions", "owls", "bears"]


def test_message_is_returned_as_stored(hub, ids):
    made = hub.send(ids[1], "hello")
    message = made["message"]
    assert message == stored(hub, message["id"])
    listed = hub.http.get(f"/api/v1/messages?topic_id={ids[1]}&limit=1").body
    assert listed["messages"] == [message]
    assert listed["cursor"] == message["id"]
    assert message["version"] == 1
    assert message["edited_at"] is message["deleted_at"] is message["deleted_by"] is None


def test_page_since_a_time_begins_there_and_continues(hub, ids):
    other = hub.topic(ids[0], "beside")
    sent = []
    for number in range(4):
        sent.append(hub.send(ids[1], f"since {number}")["message"])
        hub.send(other)
    path = f"/api/v1/messages?topic_id={ids[1]}&since={sent[1]['created_at']}"
    started = [each for each in sent if each["created_at"] >= sent[1]["created_at"]]
    assert hub.http.get(path).body["messages"] == started
    page = hub.http.get(f"{path}&limit=1").body
    assert page["has_more"]
    continued = hub.http.get(f"{path}&after_id={page['cursor']}").body
    assert page["messages"] + continued["messages"] == started
    assert hub.http.get(f"/api/v1/messages?topic_id={ids[1]}&since=2100-01-01").body == {
        "messages": [], "has_more": False, "cursor": None,
    }  # fmt: skip


@pytest.mark.parametrize("query", ["since=soon", "since=2026-01-01&before_id=msg_x"])
def test_page_with_an_unusable_time_is_refused(hub, ids, query):
    answer = hub.http.get(f"/api/v1/messages?topic_id={ids[1]}&{query}")
    assert (answer.status, answer.body["code"]) == (400, "INVALID_INPUT")
    assert answer.body["details"]["field"] == "since"


@pytest.mark.parametrize("text", HOSTILE)
def test_text_is_returned_unchanged(hub, text):
    channel = hub.http.post("/api/v1/channels", {"name": text, "description": text})
    assert channel.body["channel"]["name"] == plain_name(text)
    assert channel.body["channel"]["description"] == text
    command = {"channel_id": channel.body["channel"]["id"], "title": text}
    topic = hub.http.post("/api/v1/topics", command).body["topic"]
    assert topic["title"] == plain_name(text)
    command = {"topic_id": topic["id"], "sender": text, "content_raw": text}
    message = hub.http.post("/api/v1/messages", command).body["message"]
    assert (message["sender"], message["content_raw"]) == (text, text)
    assert stored(hub, message["id"]) == message
    edited = patch(hub, message["id"], op="edit", content_raw=text + text).body["message"]
    assert edited["content_raw"] == text + text
    page = hub.http.get(f"/api/v1/messages?topic_id={topic['id']}").body["messages"]
    assert page == [edited]
    deleted = patch(hub, message["id"], op="delete", actor=text).body["message"]
    assert deleted["deleted_by"] == text
    events = hub.http.get(f"/api/v1/events?topic_id={topic['id']}").body["events"]
    edits = [event["data_json"] for event in events if event["name"] == "message.edited"]
    assert (edits[0]["old_content"], edits[0]["new_content"]) == (text, text + text)
    assert {row[0] for row in hub.rows("SELECT name FROM sqlite_schema")} >= {"messages", "events"}


def test_names_work_where_ids_do(hub):
    """Also names that contain the separator."""
    channel = hub.http.post("/api/v1/channels", {"name": "a/b"}).body["channel"]["id"]
    made = hub.http.post("/api/v1/topics", {"channel_id": "a/b", "title": "c/d"}).body["topic"]
    assert made["channel_id"] == channel
    command = {"topic_id": "a/b/c/d", "sender": "ann", "content_raw": "hello wombat"}
    sent = hub.http.post("/api/v1/messages", command).body["message"]
    assert sent["topic_id"] == made["id"]
    assert hub.http.get(f"/api/v1/messages/{sent['id']}").body == {"message": sent}
    for path in (
        "/api/v1/messages?topic_id=a/b/c/d",
        "/api/v1/messages?channel_id=a/b",
        "/api/v1/search?q=wombat&channel_id=a/b&topic_id=a/b/c/d",
    ):
        assert [row["id"] for row in hub.http.get(path).body["messages"]] == [sent["id"]]
    events = hub.http.get("/api/v1/events?channel_id=a/b&topic_id=a/b/c/d").body["events"]
    assert [event["entity"]["id"] for event in events] == [made["id"], sent["id"]]
    other = hub.http.post("/api/v1/topics", {"channel_id": channel, "title": "e"}).body["topic"]
    moved = patch(hub, sent["id"], op="move_topic", to_topic_id="a/b/e", mode="one")
    assert moved.body["affected_count"] == 1
    assert hub.http.get(f"/api/v1/messages/{sent['id']}").body["message"]["topic_id"] == other["id"]
    hub.http.post("/api/v1/channels", {"name": "plain"})
    assert hub.http.get("/api/v1/channels/plain/topics").body["topics"] == []
    for path in ("messages?topic_id=a/nothing", "events?channel_id=nothing", "messages/nothing"):
        assert hub.http.get(f"/api/v1/{path}").status == 404


# -- versions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [{"op": "edit", "content_raw": "x"}, {"op": "delete", "actor": "a"}]
)
def test_conflict_reports_expected_and_current_version(hub, ids, command):
    message = hub.send(ids[1])["message"]
    head = hub.head
    answer = patch(hub, message["id"], **command, expected_version=3)
    assert answer.status == 409
    body = answer.body
    assert body["code"] == "VERSION_CONFLICT"
    assert body["details"] == {"message_id": message["id"], "expected": 3, "current": 1}
    assert body["current_version"] == 1
    assert hub.head == head
    assert stored(hub, message["id"]) == message


def test_deleted_message_is_a_tombstone_without_content(hub, ids):
    message_id = hub.send(ids[1], "secret plan")["message"]["id"]
    deleted = patch(hub, message_id, op="delete", actor="bob", expected_version=1)
    assert deleted.status == 200
    message = deleted.body["message"]
    assert (message["content_raw"], message["version"]) == ("[deleted]", 2)
    assert message == stored(hub, message_id)
    ((event,),) = hub.rows(
        "SELECT data_json FROM events WHERE event_id = ?", deleted.body["event_id"]
    )
    assert json.loads(event) == {
        "message_id": message_id, "deleted_by": "bob", "version": 2, "principal": "server",
    }  # fmt: skip
    head = hub.head
    repeated = patch(hub, message_id, op="delete", actor="carol")
    assert (repeated.status, repeated.body) == (200, {"message": message, "event_id": None})
    refused = patch(hub, message_id, op="edit", content_raw="back")
    assert (refused.status, refused.body["error"]) == (400, "cannot edit deleted message")
    assert hub.head == head
    page = hub.http.get(f"/api/v1/messages?topic_id={ids[1]}&limit=1").body
    assert page["messages"] == [message], "a tombstone stays in its place"


# -- pages -----------------------------------------------------------------------------------
