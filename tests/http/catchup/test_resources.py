"""Catch-ups of a served appliance: commands, tools, tokens, two writers at once, and their cost."""

import json
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from appliance.hub.catchup import wire
from tests.support.servedhub import ServedHub, serve

pytestmark = pytest.mark.slow
PATH = "/api/v1/catch-up"


def catch_up(hub, client=None, **query):
    words = "&".join(f"{key}={value}" for key, value in query.items())
    answer = (client or hub.http).get(f"{PATH}?{words}")
    assert answer.status == 200, answer
    return answer.body


def call(hub, tool, **arguments):
    params = {"name": tool, "arguments": arguments}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return hub.http.post("/mcp", body, headers={"Accept": "application/json"}).body["result"]


def test_claims_on_the_worker_bus_are_shown(hub, ids):
    assert catch_up(hub, name="ada-c")["parts"][1]["items"] == []
    claim = {"task": "task-7", "agent": "ada-c"}
    assert hub.http.post("/bus/v1/claims", claim).status == 201
    made = catch_up(hub, name="ada-c")
    (item,) = made["parts"][1]["items"]
    assert item["id"] == "task-7"
    assert "## Claims\n- task-7, lease ends in " in made["text"]


def test_tools_return_the_text_within_the_budget(hub, ids):
    command = {"topic_id": ids[1], "sender": "boss", "content_raw": "look " * 50, "to": ["ada-t"]}
    for _ in range(20):
        hub.http.post("/api/v1/messages", command)
    for tokens in (100, 300, 2000):
        result = call(hub, "catch_up", name="ada-t", tokens=tokens)
        (content,) = result["content"]
        assert len(content["text"].encode()) <= tokens * wire.BYTES_PER_TOKEN
        assert "## Entries" in result["structuredContent"]["text"]
    arguments = {"topic_id": "general/t", "note": "look at build 7", "name": "ada-t"}
    made = call(hub, "write_handoff", **arguments)["structuredContent"]
    assert made["state"]["handoff"]["version"] == 1
    refused = call(hub, "write_handoff", **arguments)
    assert refused["isError"]
    assert json.loads(refused["content"][0]["text"])["code"] == "VERSION_CONFLICT"
    shown = call(hub, "read_handoff", topic_id="general/t")["structuredContent"]
    assert shown["state"]["handoff"]["note"] == "look at build 7"


def test_one_of_many_writers_replaces_a_version(hub, ids):
    topic_id = hub.topic(ids[0], "contended")
    path = f"/api/v1/topics/{topic_id}/handoff"

    def write(number):
        body = {"note": f"note {number}", "name": f"w{number}"}
        return hub.connect().post(path, body).status

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(write, range(8)))
    assert sorted(statuses) == [200] + [409] * 7
    state = hub.http.get(f"/api/v1/topics/{topic_id}/state").body["state"]
    assert state["handoff"]["note"] == f"note {statuses.index(200)}"


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("tokens=99", 400), ("tokens=20001", 400), ("tokens=100", 200), ("tokens=20000", 200),
        ("since=-1", 400), ("since=9999999", 409), ("name=%20", 400),
    ],
)  # fmt: skip
def test_limits_of_a_request(hub, ids, query, status):
    assert hub.http.get(f"{PATH}?{query}").status == status


def test_catch_up_in_a_large_workspace_blocks_nobody(tmp_path):
    with serve(tmp_path) as hub:
        channel_id = hub.channel("general")
        topics = [hub.topic(channel_id, f"t{number}") for number in range(300)]
        for topic_id in topics[:100]:
            hub.send_many(topic_id, ["x" * 500] * 100)
        path = next(tmp_path.rglob("db.sqlite3"))
    with sqlite3.connect(path) as connection:
        names = [name for (name,) in connection.execute("SELECT id FROM messages LIMIT 5000")]
        connection.executemany(
            "INSERT INTO x_entries (name, position, message_id, channel_id, reason, state,"
            " stored_at) VALUES ('ada', ?, ?, ?, 'to', 'stored', '2026-01-01T00:00:00Z')",
            [(number, id_, channel_id) for number, id_ in enumerate(names, 1)],
        )
    with serve(tmp_path) as hub:
        made = catch_up(hub, name="ada", tokens=20_000)
        assert made["tokens"] <= 20_000
        assert made["parts"][2]["is_bound"]
        assert made["parts"][4]["is_bound"]
        delays = []
        with ThreadPoolExecutor(1) as pool:
            busy = pool.submit(lambda: [catch_up(hub, hub.connect(), name="ada", tokens=20_000)
                                        for _ in range(10)])  # fmt: skip
            other = hub.connect()
            while not busy.done():
                start = time.monotonic()
                assert other.get("/healthz").status in (200, 404)
                delays.append(time.monotonic() - start)
        delays.sort()
        assert delays[len(delays) // 2] < 0.05, "others are served meanwhile"


def test_pins_are_added_listed_and_removed(hub, ids):
    message = ServedHub.made(
        hub.http.post(
            "/api/v1/messages", {"topic_id": ids[1], "sender": "boss", "content_raw": "decided"}
        )
    )
    pinned = hub.http.post(f"/api/v1/messages/{message['message']['id']}/pin", {"name": "ada"})
    assert pinned.body["changed"]
    listed = hub.http.get("/api/v1/pins?channel_id=general").body["pins"]
    assert [each["message"]["content_raw"] for each in listed] == ["decided"]
    unpinned = hub.http.post(f"/api/v1/messages/{message['message']['id']}/unpin", {})
    assert unpinned.body["changed"]
