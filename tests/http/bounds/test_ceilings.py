"""Ceilings for a day in a served appliance: counted, warned about, paused, and granted again."""

import pytest

from tests.http.bounds.test_pauses import post, refused, resume

pytestmark = pytest.mark.slow
CEILINGS = "/api/v1/ceilings"


def set_ceiling(hub, name, **limits):
    answer = hub.http.post(CEILINGS, {"name": name, **limits})
    assert answer.status in (200, 201), answer
    return answer.body["ceiling"]


def usage(hub, name):
    rows = hub.http.get(CEILINGS).body["ceilings"]
    return next(row["usage"] for row in rows if row["name"] == name)


def events(hub, kind, about):
    sql = "SELECT data_json FROM events WHERE name = ? AND data_json LIKE ?"
    return len(hub.rows(sql, kind, f'%"{about}"%'))


@pytest.fixture(scope="module")
def topic_id(hub):
    return hub.channel_with_topic("counted")[1]


def turn(number, **more):
    return {
        "number": number, "began_at": "2026-02-04T20:00:00.000Z", "seconds": 1, "code": 0,
        "outcome": "done", "entries": [], "open": [], **more,
    }  # fmt: skip


def report(hub, name, number, **more):
    body = {"run_id": name, "state": "asleep", "turn": turn(number, **more)}
    answer = hub.http.post(f"/api/v1/agents/{name}/report", body)
    assert answer.status == 200, answer
    return answer.body["pause"]


def test_messages_warn_at_80_percent_and_pause_at_the_ceiling(hub, topic_id, agent):
    ada = agent("cap-1")
    set_ceiling(hub, "cap-1", messages=5)
    for number in range(3):
        assert post(ada, topic_id, "cap-1", str(number)).status == 201
    assert events(hub, "ceiling.warned", "cap-1") == 0
    assert post(ada, topic_id, "cap-1").status == 201
    assert events(hub, "ceiling.warned", "cap-1") == 1
    assert post(ada, topic_id, "cap-1").status == 201
    body = refused(post(ada, topic_id, "cap-1"))
    assert body["details"]["cause"] == "ceiling"
    assert body["details"]["reason"] == "the ceiling for a day is reached: 5 messages"
    assert usage(hub, "cap-1")["messages"] == 5


def test_resuming_grants_the_ceiling_once_more(hub, topic_id, agent):
    ada = agent("cap-2")
    set_ceiling(hub, "cap-2", messages=2)
    for _ in range(2):
        assert [post(ada, topic_id, "cap-2").status for _ in range(2)] == [201, 201]
        refused(post(ada, topic_id, "cap-2"))
        resume(hub, principal="cap-2")
    assert usage(hub, "cap-2")["granted"] == 2
    assert post(ada, topic_id, "cap-2").status == 201


def test_messages_in_one_batch_stop_at_the_ceiling(hub, topic_id, agent):
    ada = agent("cap-3")
    set_ceiling(hub, "cap-3", messages=3)
    message = {"topic_id": topic_id, "sender": "cap-3", "content_raw": "x"}
    answer = ada.post("/api/v1/messages/batch", {"messages": [message] * 6})
    assert [result.get("code") for result in answer.body["results"]] == [None] * 3 + ["PAUSED"] * 3


def test_repeated_message_is_counted_once(hub, topic_id, agent):
    ada = agent("cap-4")
    set_ceiling(hub, "cap-4", messages=10)
    message = {"topic_id": topic_id, "sender": "cap-4", "content_raw": "x"}
    for _ in range(3):
        ada.post("/api/v1/messages", message, headers={"Idempotency-Key": "k-cap-4"})
    assert usage(hub, "cap-4")["messages"] == 1


def test_claims_pause_at_the_ceiling(hub, agent):
    ada = agent("cap-5")
    set_ceiling(hub, "cap-5", claims=2)
    for number in range(2):
        claim = {"task": f"c-{number}", "agent": "cap-5"}
        assert ada.post("/bus/v1/claims", claim).status == 201
    refused(ada.post("/bus/v1/claims", {"task": "c-3", "agent": "cap-5"}))


@pytest.mark.parametrize(
    ("name", "limits", "used"),
    [
        ("cap-6", {"turns": 2}, {}),
        ("cap-7", {"tokens": 2000}, {"tokens": 1000}),
        ("cap-8", {"cost": 0.5}, {"cost": 0.25}),
    ],
)
def test_turns_pause_the_agent_at_the_ceiling(hub, topic_id, name, limits, used):
    set_ceiling(hub, name, **limits)
    assert report(hub, name, 1, **used) is None
    assert report(hub, name, 1, **used) is None, "a repeated report counts once"
    assert report(hub, name, 2, **used)["by"] == "appliance"
    refused(post(hub.http, topic_id, name))
    turns = hub.http.get(f"/api/v1/agents/{name}/turns").body["turns"]
    assert [{key: row[key] for key in used} for row in turns] == [used, used]


def test_name_without_a_ceiling_is_not_counted(hub, topic_id, agent):
    ada = agent("cap-9")
    post(ada, topic_id, "cap-9")
    assert hub.rows("SELECT 1 FROM x_usage WHERE name = 'cap-9'") == []
    set_ceiling(hub, "cap-9", messages=5)
    post(ada, topic_id, "cap-9")
    assert usage(hub, "cap-9")["messages"] == 1
    removed = hub.http.post(f"{CEILINGS}/remove", {"name": "cap-9"})
    assert removed.body == {"name": "cap-9"}
    assert hub.http.post(f"{CEILINGS}/remove", {"name": "cap-9"}).status == 404


def test_ceiling_without_limits_is_refused(hub):
    assert hub.http.post(CEILINGS, {"name": "ada"}).body["code"] == "INVALID_INPUT"
