"""Every operation that declares Idempotency-Key, by the served description: it works once."""

import json

import pytest

from tests.support.operated_workspace import fill_sends
from tests.support.servedhub import serve
from tests.support.until import until

pytestmark = pytest.mark.slow

KEY = {"Idempotency-Key": "nightly-4711"}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    (folder / "jobs").mkdir()
    (folder / "jobs" / "sleepy.toml").write_text('command = ["sleep", "600"]')
    with serve(folder) as hub:
        fill_sends(hub)
        hub.made(hub.http.post("/broker/v1/meshes/lab/topics", {"name": "news"}))
        yield hub


@pytest.fixture(scope="module")
def requests(hub):
    """A path and a body for each operation."""
    channel, topic = hub.channel_with_topic("general")
    message = hub.send(topic)["message"]["id"]
    url = "https://hooks.example.com/"
    webhook = hub.made(hub.http.post("/api/v1/webhooks", {"url": url}))["webhook"]["id"]

    def ask():
        body = {"text": "Go?", "sender": "ci", "choices": ["yes", "no"], "topic_id": topic}
        return hub.made(hub.http.post("/api/v1/asks", body))["ask"]["id"]

    def dead():
        path = "/v1/outbox/sends?status=dead"
        (send, *_) = until(lambda: hub.http.get(path).body["sends"], 30, "a dead send")
        return send["id"]

    def entry():
        body = {**say, "to": ["ada"]}
        created = hub.made(hub.http.post("/api/v1/messages", body))
        return created["receipts"][0]["entry_id"]

    say = {"topic_id": topic, "sender": "ci", "content_raw": "done"}
    send = {"to": "#news", "message": "hello", "mesh": "lab"}
    return {
        "POST /api/v1/channels": (None, {"name": "once"}),
        "POST /api/v1/topics": (None, {"channel_id": channel, "title": "once"}),
        "PATCH /api/v1/topics/{topic_id}": ({"topic_id": topic}, {"title": "renamed"}),
        "POST /api/v1/topics/{topic_id}/attachments": (
            {"topic_id": topic}, {"kind": "url", "value_json": {"url": url}},
        ),
        "POST /api/v1/messages": (None, say),
        "PATCH /api/v1/messages/{message_id}": (
            {"message_id": message}, {"op": "edit", "content_raw": "x"},
        ),
        "POST /api/v1/messages/batch": (None, {"messages": [say, say]}),
        "POST /bus/v1/messages": (None, {"from_agent": "ada", "type": "note"}),
        "POST /bus/v1/claims": (None, {"task": "parser", "agent": "ada"}),
        "POST /v1/send": (None, send),
        "POST /v1/send/batch": (None, {"items": [send]}),
        "POST /v1/topic/post": (None, {"topic": "news", "message": "hello", "mesh": "lab"}),
        "POST /v1/outbox/redrive": (None, {"id": dead, "auto": True}),
        "POST /v1/outbox/requeue": (None, {"id": dead, "auto": True}),
        "POST /api/v1/webhooks": (None, {"url": url + "other"}),
        "POST /api/v1/incoming": (None, {"name": "ci", "template": "json", "topic_id": topic}),
        "PATCH /api/v1/webhooks/{webhook_id}": ({"webhook_id": webhook}, {"description": "d"}),
        "POST /api/v1/asks": (
            None, {"text": "Go?", "sender": "ci", "choices": ["yes", "no"], "topic_id": topic},
        ),
        "POST /api/v1/asks/{ask_id}/answer": ({"ask_id": ask}, {"answer": "yes"}),
        "POST /api/v1/asks/{ask_id}/cancel": ({"ask_id": ask}, {}),
        "POST /api/v1/jobs/{job}/runs": ({"job": "sleepy"}, {}),
        "POST /api/v1/inbox/acknowledge": (None, {"ids": [entry()], "name": "ada"}),
        "POST /api/v1/inbox/decline": (None, {"id": entry, "reason": "no", "name": "ada"}),
        "POST /api/v1/topics/{topic_id}/follow": ({"topic_id": topic}, {"name": "ada"}),
        "POST /api/v1/topics/{topic_id}/unfollow": ({"topic_id": topic}, {"name": "ada"}),
        "POST /api/v1/agents/{agent}/pause": ({"agent": "ada"}, {"reason": "freeze"}),
        "POST /api/v1/agents/{agent}/resume": ({"agent": "ada"}, {}),
        "POST /api/v1/topics/{topic_id}/resolve": ({"topic_id": topic}, {"note": "done"}),
        "POST /api/v1/topics/{topic_id}/reopen": ({"topic_id": topic}, {"note": "again"}),
        "POST /api/v1/topics/{topic_id}/handoff": ({"topic_id": topic}, {"note": "next"}),
        "POST /api/v1/messages/{message_id}/pin": ({"message_id": message}, {}),
        "POST /api/v1/messages/{message_id}/unpin": ({"message_id": message}, {}),
        "POST /api/v1/pauses": (None, {"principal": "eve", "seconds": 60}),
        "POST /api/v1/pauses/resume": (None, {"principal": "eve"}),
        "POST /api/v1/ceilings": (None, {"name": "eve", "messages": 5}),
        "POST /api/v1/ceilings/remove": (None, {"name": "eve"}),
    }  # fmt: skip


def test_keyed_operation_works_once(hub, requests):
    described = {
        f"{method.upper()} {path}"
        for path, item in hub.http.get("/api/v1/openapi.json").body["paths"].items()
        for method, operation in item.items()
        if any("IdempotencyKey" in each.get("$ref", "") for each in operation.get("parameters", ()))
    }
    assert described == requests.keys()
    wrong = {}
    for number, (name, (fields, body)) in enumerate(requests.items()):
        method, _, path = name.partition(" ")
        known = {
            key: value() if callable(value) else value for key, value in (fields or {}).items()
        }
        body = {key: value() if callable(value) else value for key, value in body.items()}
        key = {"Idempotency-Key": f"key-{number}"}
        replies = [hub.http(method, path.format(**known), body, headers=key) for _ in range(2)]
        statuses = [reply.status for reply in replies]
        ids = [_ids(reply.body) for reply in replies]
        if statuses[0] not in (200, 201, 202) or ids[0] != ids[1][: len(ids[0])]:
            wrong[name] = statuses, [reply.raw[:300] for reply in replies]
    assert not wrong, json.dumps(wrong, indent=1, default=str)


def _ids(value):
    """All values of fields that are ids, in order."""
    if isinstance(value, dict):
        own = [text for key, text in value.items() if key == "id" or key.endswith(("_id", "_ids"))]
        value = [*own, *(part for part in value.values() if isinstance(part, (dict, list)))]
    if isinstance(value, list):
        return [item for part in value for item in _ids(part)]
    return [] if value is None else [value]


def test_request_for_a_run_with_a_key_makes_one_run(hub):
    for run in hub.http.get("/api/v1/jobs/sleepy/history").body["runs"]:
        hub.http.post(f"/api/v1/jobs/runs/{run['id']}/cancel", {})
        hub.http.get(f"/api/v1/jobs/runs/{run['id']}?wait=20")
    first, again = (hub.http.post("/api/v1/jobs/sleepy/runs", {}, headers=KEY) for _ in range(2))
    assert (first.status, again.status) == (201, 201)
    assert first.body["run"]["id"] == again.body["run"]["id"]
    assert again.headers["idempotency-replayed"] == "true"
    busy = hub.http.post("/api/v1/jobs/sleepy/runs", {}, headers={"Idempotency-Key": "other"})
    assert busy.body["code"] == "JOB_BUSY"
    who = hub.http.post("/api/v1/tokens", {"name": "other", "scopes": ["jobs:run"]}).body["secret"]
    other = hub.connect(who).post("/api/v1/jobs/sleepy/runs", {}, headers=KEY)
    assert other.body["code"] == "JOB_BUSY", "a key belongs to a token"
