"""Pauses of a served appliance: what they refuse, what they allow, and how they end."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.courier import envelope, receive_frame, send, subscribed
from tests.support.servedhub import ServedHub, serve
from tests.support.until import until

pytestmark = pytest.mark.slow
PAUSES = "/api/v1/pauses"


def pause(hub, **command):
    answer = hub.http.post(PAUSES, command)
    assert answer.status in (200, 201), answer
    return answer.body["pause"]


def resume(hub, **command):
    answer = hub.http.post(f"{PAUSES}/resume", command)
    assert answer.status == 200, answer
    return answer.body["pause"]


def post(client, topic_id, sender, text="hello"):
    command = {"topic_id": topic_id, "sender": sender, "content_raw": text}
    return client.post("/api/v1/messages", command)


def refused(answer):
    assert (answer.status, answer.body["code"]) == (409, "PAUSED"), answer
    return answer.body


def tool(client, name, **arguments):
    request = {
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": name, "arguments": arguments},
    }  # fmt: skip
    answer = client.post("/mcp", request)
    assert answer.status == 200, answer
    return answer.body["result"]


@pytest.fixture(scope="module")
def topic_id(hub):
    return hub.channel_with_topic("paused")[1]


def test_paused_name_may_not_post_claim_receive_or_wait(hub, topic_id, agent):
    ada = agent("ada-1")
    claim = {"task": "t-1", "agent": "ada-1"}
    assert ada.post("/bus/v1/claims", claim).status == 201
    pause(hub, principal="ada-1", reason="deploy freeze", seconds=3600)
    body = refused(post(ada, topic_id, "ada-1"))
    assert body["details"]["by"] == "server"
    assert body["details"]["until"] is not None
    assert body["hint"].startswith("agentlip resume --principal ada-1; paused by server until")
    assert body["hint"].endswith("deploy freeze")
    batch = {"messages": [{"topic_id": topic_id, "sender": "ada-1", "content_raw": "x"}]}
    results = ada.post("/api/v1/messages/batch", batch).body["results"]
    assert [result["code"] for result in results] == ["PAUSED"]
    for method, path, command in (
        ("POST", "/bus/v1/claims", {"task": "t-2", "agent": "ada-1"}),
        ("POST", "/v1/receive", {"stream": "work"}),
        ("GET", "/api/v1/inbox?wait=5", None),
        ("GET", "/api/v1/inbox/stream", None),
        ("GET", "/api/v1/events?wait=5", None),
        ("GET", "/api/v1/events/stream", None),
        ("GET", "/bus/v1/messages?agent=ada-1&wait=5", None),
        ("GET", "/bus/v1/stream?agent=ada-1", None),
    ):
        refused(ada(method, path, command))
    for name, arguments in (
        ("post_message", {"topic_id": topic_id, "sender": "ada-1", "content": "x"}),
        ("my_inbox", {"wait_s": 5}),
        ("wait_events", {"wait_s": 5}),
        ("claim_task", {"task": "t-2", "agent": "ada-1"}),
        ("courier_receive", {"stream": "work"}),
        ("bus_poll", {"agent": "ada-1", "wait": 5}),
    ):
        result = tool(ada, name, **arguments)
        assert result["isError"], (name, result)
        assert "PAUSED" in json.dumps(result), (name, result)
    resume(hub, principal="ada-1")
    assert post(ada, topic_id, "ada-1").status == 201


def test_paused_name_may_read_and_let_go(hub, topic_id, agent):
    ada = agent("ada-2")
    claimed = ada.post("/bus/v1/claims", {"task": "t-3", "agent": "ada-2"}).body
    held = {"task": "t-3", "agent": "ada-2", "fence": claimed["fence"]}
    sent = {"topic_id": topic_id, "sender": "boss", "content_raw": "look", "to": ["ada-2"]}
    entry = ServedHub.made(hub.http.post("/api/v1/messages", sent))["receipts"][0]
    pause(hub, principal="ada-2")
    for method, path, command in (
        ("GET", f"/api/v1/messages?topic_id={topic_id}", None),
        ("GET", "/api/v1/inbox", None),
        ("GET", PAUSES, None),
        ("POST", "/api/v1/inbox/acknowledge", {"ids": [entry["entry_id"]]}),
        ("POST", "/bus/v1/heartbeats", {"agent": "ada-2", "status": "idle"}),
        ("POST", "/bus/v1/claims/renew", held),
        ("POST", "/bus/v1/claims/release", held),
    ):
        assert ada(method, path, command).status in (200, 201), path
    resume(hub, principal="ada-2")


def test_pause_of_a_sender_holds_for_a_shared_token(hub, topic_id):
    pause(hub, principal="eve")
    refused(post(hub.http, topic_id, "eve"))
    assert post(hub.http, topic_id, "alice").status == 201
    resume(hub, principal="eve")


@pytest.mark.parametrize(
    ("name", "method", "path", "command"),
    [
        ("w1", "GET", "/api/v1/inbox?wait=60", None),
        ("w2", "GET", "/api/v1/events?after={head}&wait=60&name=never", None),
        ("w3", "GET", "/bus/v1/messages?agent=w3&wait=60", None),
        ("w4", "POST", "/bus/v1/claims", {"task": "held", "agent": "w4", "wait": 60}),
        ("w5", "POST", "/v1/receive", {"stream": "empty", "wait": 60}),
    ],
)
def test_wait_ends_when_a_pause_begins(hub, agent, name, method, path, command):
    hub.http.post("/bus/v1/claims", {"task": "held", "agent": "other", "lease_seconds": 3600})
    ada = agent(name)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ada, method, path.format(head=hub.head), command)
        until(lambda: waiting(hub) >= 2, 20, "somebody waits")
        pause(hub, principal=name)
        refused(answer.result(10))
    resume(hub, principal=name)


def waiting(hub):
    """How many requests the appliance works on, this one too."""
    text = hub.http.get("/metrics").raw.decode()
    lines = [line for line in text.splitlines() if line.startswith("agentlip_http_requests_in")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def test_event_stream_ends_with_the_pause(hub, agent):
    ada = agent("ada-4")
    with socket.create_connection(("127.0.0.1", hub.port), 30) as sock:
        sock.sendall(
            f"GET /api/v1/inbox/stream HTTP/1.1\r\nHost: 127.0.0.1:{hub.port}\r\n"
            f"Authorization: Bearer {ada.token}\r\nConnection: close\r\n\r\n".encode()
        )
        file = sock.makefile("rb")
        lines = iter(file.readline, b"")
        assert any(line.startswith(b"retry:") for line in lines)
        pause(hub, principal="ada-4")
        rest = b"".join(lines)
    assert b"event: error\ndata: {" in rest
    assert b'"code":"PAUSED"' in rest
    resume(hub, principal="ada-4")


def test_pause_of_all_leaves_people_alone(hub, topic_id, agent):
    ada, person = agent("ada-5"), agent("alice", "hub:read", "hub:post", "ask:answer")
    hub.http.post("/api/v1/agents/shared-1/report", {"run_id": "r", "state": "asleep"})
    pause(hub, all=True, reason="stop")
    refused(post(ada, topic_id, "ada-5"))
    refused(post(hub.http, topic_id, "shared-1"))
    assert post(person, topic_id, "alice").status == 201
    assert post(hub.http, topic_id, "boss").status == 201
    assert agent_row(hub, "shared-1")["pause"]["reason"] == "stop"
    resume(hub, all=True)
    assert post(ada, topic_id, "ada-5").status == 201
    assert agent_row(hub, "shared-1")["pause"] is None


def agent_row(hub, name):
    rows = hub.http.get("/api/v1/agents").body["agents"]
    return next(row for row in rows if row["name"] == name)


def test_paused_topic_takes_messages_from_people_only(hub, agent):
    _, topic_id = hub.channel_with_topic("closed")
    ada = agent("ada-6")
    shown = pause(hub, topic_id="closed/t", reason="enough")
    assert (shown["kind"], shown["topic"]) == ("topic", "closed/t")
    body = refused(post(ada, topic_id, "ada-6"))
    assert body["hint"].startswith("agentlip resume --topic closed/t;")
    assert post(hub.http, topic_id, "boss").status == 201
    endpoint = {"name": "ci", "template": "json", "topic_id": topic_id}
    ServedHub.made(hub.http.post("/api/v1/incoming", endpoint))
    delivery = {"payload": '{"text": "build 7"}', "send": True}
    refused(hub.http.post("/api/v1/incoming/ci/test", delivery))
    resume(hub, topic_id=topic_id)
    assert post(ada, topic_id, "ada-6").status == 201
    assert hub.http.post("/api/v1/incoming/ci/test", delivery).status == 200


def test_pause_ends_by_itself_and_is_in_the_event_log(hub, topic_id, agent):
    ada, head = agent("ada-7"), hub.head
    pause(hub, principal="ada-7", seconds=1)
    refused(post(ada, topic_id, "ada-7"))
    until(lambda: post(ada, topic_id, "ada-7").status == 201, 20, "the pause is over")
    until(lambda: names(hub, head)[-1:] == ["pause.ended"], 20, "the end is in the log")
    assert "pause.began" in names(hub, head)


def names(hub, head):
    rows = hub.rows("SELECT name FROM events WHERE event_id > ? ORDER BY event_id", head)
    return [name for (name,) in rows if name.startswith("pause.")]


def test_pause_holds_after_a_restart(tmp_path):
    with serve(tmp_path) as hub:
        _, topic_id = hub.channel_with_topic("general")
        pause(hub, principal="eve")
        hub.kill()
        hub.start()
        refused(post(hub.http, topic_id, "eve"))
        assert [row["subject"] for row in hub.http.get(PAUSES).body["pauses"]] == ["eve"]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({}, "INVALID_INPUT"),
        ({"principal": "a", "all": True}, "INVALID_INPUT"),
        ({"principal": "a", "until": "2001-01-01T00:00:00Z"}, "INVALID_INPUT"),
        ({"principal": "a", "until": "2901-01-01T00:00:00Z"}, "INVALID_INPUT"),
        ({"principal": " "}, "INVALID_INPUT"),
        ({"topic_id": "no/such"}, "NOT_FOUND"),
        ({"topic_id": "topic_0"}, "NOT_FOUND"),
    ],
)
def test_wrong_pause_is_refused(hub, command, code):
    assert hub.http.post(PAUSES, command).body["code"] == code


def test_only_an_administrator_pauses_and_resumes(hub, agent):
    ada = agent("ada-8")
    assert ada.post(PAUSES, {"principal": "bob"}).status == 403
    assert ada.post(f"{PAUSES}/resume", {"principal": "bob"}).status == 403
    missing = hub.http.post(f"{PAUSES}/resume", {"principal": "nobody"})
    assert missing.body["code"] == "NOT_FOUND"


def test_consumer_gets_envelopes_again_after_its_pause(hub):
    pause(hub, principal="con")
    with subscribed(hub, "jobs", "&name=con&credit=5", hub.token) as consumer:
        assert receive_frame(consumer)["error"]["name"] == "PAUSED"
        enqueue(hub, "jobs", "e-1")
        resume(hub, principal="con")
        assert receive_frame(consumer)["deliver"]["id"] == "e-1"
        pause(hub, principal="con")
        assert receive_frame(consumer)["error"]["name"] == "PAUSED"
        enqueue(hub, "jobs", "e-2")
        send(consumer, ack="e-1")
        until(lambda: in_flight(hub, "jobs") == 0, 20, "the ack counts")
        assert hub.http.get("/v1/stats?stream=jobs").body["ready"] == 1
        resume(hub, principal="con")
        assert receive_frame(consumer)["deliver"]["id"] == "e-2"


def enqueue(hub, stream, envelope_id):
    body = {"to": stream, "envelope": envelope(envelope_id)}
    assert hub.http.post("/v1/enqueue", body).status == 200


def in_flight(hub, stream):
    return hub.http.get(f"/v1/stats?stream={stream}").body["inflight"]
