"""Cards, callers and hostile requests, as a client without a library sends them."""

import json

import pytest

from tests.http.a2a.agents import SETTINGS, A2aHub, made_token
from tests.support.servedhub import serve

pytestmark = pytest.mark.slow
CARD = "/.well-known/agent-card.json"
TEXT = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}
SOON = {"returnImmediately": True}


def send(hub: A2aHub, number: str, token: str = "", **more):
    params = {"message": {**TEXT, "messageId": number, **more}, "configuration": SOON}
    return hub.rpc("SendMessage", params, token)


def code(reply):
    return reply["error"]["code"]


def reason(reply):
    (info,) = reply["error"]["data"]
    assert info["metadata"]["hint"]
    return info["reason"]


def test_card_needs_no_token_and_names_its_endpoint(hub):
    card = hub.served.connect(None).get(f"/a2a/builder{CARD}")
    assert card.status == 200
    assert card.body["supportedInterfaces"] == [
        {"url": f"{hub.url}/a2a/builder", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ]
    assert [skill["id"] for skill in card.body["skills"]] == ["build"]
    assert len(card.body["signatures"]) == 1


def test_root_card_with_several_agents_is_missing_and_lists_all(hub):
    for path in (CARD, "/.well-known/agent.json"):
        missing = hub.served.connect(None).get(path)
        assert missing.status == 404
        assert missing.body["code"] == "NO_SUCH_A2A_AGENT"
        assert f"/a2a/builder{CARD}, /a2a/team{CARD}, /a2a/tester{CARD}" in missing.body["hint"]


def test_unknown_agent_has_neither_card_nor_endpoint(hub):
    card = hub.served.connect(None).get(f"/a2a/nobody{CARD}")
    assert (card.status, card.body["code"]) == (404, "NO_SUCH_A2A_AGENT")
    assert hub.post(b"{}", agent="nobody").status == 404


def test_endpoint_needs_a_token_with_hub_post(hub):
    read_only = made_token(hub.served, "reader", ["hub:read"])
    assert hub.served.connect(None).post("/a2a/builder", {}).status == 401
    assert hub.post(b"{}", read_only).status == 403


def test_other_caller_sees_and_changes_no_task(hub):
    task = send(hub, "r-own")["result"]["task"]["id"]
    for method in ("GetTask", "CancelTask", "SubscribeToTask"):
        assert code(hub.rpc(method, {"id": task}, hub.stranger)) == -32001
    assert code(send(hub, "r-foreign", hub.stranger, taskId=task)) == -32001
    assert code(hub.rpc("GetTask", {"id": task}, agent="tester")) == -32001


def test_message_to_the_agent_in_a_foreign_task_gives_no_access(hub):
    task = send(hub, "r-intruded")["result"]["task"]["id"]
    for token, sender, to in (
        (hub.stranger, "stranger", "builder"),
        (hub.caller, "caller", "tester"),
    ):
        client = hub.served.connect(token)
        command = {"topic_id": task, "sender": sender, "content_raw": "me too", "to": [to]}
        assert client.post("/api/v1/messages", command).status == 201
    assert code(hub.rpc("GetTask", {"id": task}, hub.stranger)) == -32001
    assert code(hub.rpc("GetTask", {"id": task}, agent="tester")) == -32001
    assert len(hub.rpc("GetTask", {"id": task})["result"]["history"]) == 2


def test_token_limited_to_another_channel_is_refused(hub):
    hub.served.channel("elsewhere")
    body = {"name": "limited", "senders": ["limited"], "scopes": ["hub:post@elsewhere"]}
    answer = hub.served.http.post("/api/v1/tokens", body)
    limited = hub.served.made(answer)["secret"]
    begin = {"message": {**TEXT, "messageId": "r-limited"}, "configuration": SOON}
    raw = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": begin})
    assert hub.post(raw.encode(), limited).status == 403


def test_agent_sends_no_work_to_itself(hub):
    assert code(send(hub, "r-self", hub.builder)) == -32602


def test_context_that_differs_from_the_task_is_refused(hub):
    task = send(hub, "r-context", contextId="here")["result"]["task"]
    assert task["contextId"] == "here"
    other = send(hub, "r-context-2", taskId=task["id"], contextId="there")
    assert code(other) == -32602


def test_message_id_with_another_text_is_refused(hub):
    send(hub, "r-reused")
    again = send(hub, "r-reused", parts=[{"text": "something else"}])
    assert (code(again), reason(again)) == (-32000, "IDEMPOTENCY_KEY_REUSED")


def test_paused_caller_is_refused_with_the_reason(hub):
    paused = made_token(hub.served, "paused", ["hub:post"])
    pause = {"principal": "paused", "reason": "too loud"}
    answer = hub.served.http.post("/api/v1/pauses", pause)
    assert answer.status in (200, 201), answer
    refused = send(hub, "r-paused", paused)
    assert (code(refused), reason(refused)) == (-32000, "PAUSED")


def test_data_and_url_parts_become_text(hub):
    parts = [{"text": "look"}, {"data": {"a": [1, None]}}, {"url": "https://example.com/x"}]
    task = send(hub, "r-parts", parts=parts)["result"]["task"]
    assert task["history"][0]["parts"] == [
        {"text": 'look\n\n```json\n{"a": [1, null]}\n```\n\nhttps://example.com/x'}
    ]


def test_history_length_limits_the_messages(hub):
    task = send(hub, "r-history")["result"]["task"]["id"]
    send(hub, "r-history-2", taskId=task, parts=[{"text": "newest"}])
    shown = hub.rpc("GetTask", {"id": task, "historyLength": 1})["result"]["history"]
    assert [message["parts"] for message in shown] == [[{"text": "newest"}]]
    assert "history" not in hub.rpc("GetTask", {"id": task, "historyLength": 0})["result"]


PARAMS = [
    ({}, "INVALID_INPUT"),
    ([], "INVALID_INPUT"),
    ({"message": {}}, "INVALID_INPUT"),
    ({"message": {**TEXT, "parts": []}}, "INVALID_INPUT"),
    ({"message": {**TEXT, "parts": [{"text": "x"}] * 51}}, "INVALID_INPUT"),
    ({"message": {**TEXT, "parts": [{}]}}, "INVALID_INPUT"),
    ({"message": {**TEXT, "parts": [{"text": "  "}]}}, "INVALID_INPUT"),
    ({"message": {**TEXT, "parts": [{"text": "x" * 70_000}]}}, "PAYLOAD_TOO_LARGE"),
    ({"message": {**TEXT, "role": "ROLE_AGENT"}}, "INVALID_INPUT"),
    ({"message": {**TEXT, "role": "user"}}, "INVALID_INPUT"),
    ({"message": {**TEXT, "messageId": ""}}, "INVALID_INPUT"),
    ({"message": {**TEXT, "messageId": "m" * 201}}, "INVALID_INPUT"),
    ({"message": {**TEXT, "contextId": "a b"}}, "INVALID_INPUT"),
    ({"message": {**TEXT, "contextId": "../x"}}, "INVALID_INPUT"),
    ({"message": {**TEXT, "taskId": "t" * 65}}, "INVALID_INPUT"),
    ({"message": TEXT, "configuration": {"historyLength": -1}}, "INVALID_INPUT"),
]


@pytest.mark.parametrize(("params", "expected"), PARAMS)
def test_invalid_params_are_refused_with_a_typed_error(hub, params, expected):
    reply = hub.rpc("SendMessage", params)
    assert (code(reply), reason(reply)) == (-32602, expected)


BODIES = [
    (b"{", -32700),
    (b"\xff\xfe", -32700),
    (b'{"jsonrpc":' + b"[" * 10_000, -32600),
    (b"[]", -32600),
    (b'{"jsonrpc":"2.0","method":"GetTask"}', -32600),
    (b'{"jsonrpc":"1.0","id":1,"method":"GetTask"}', -32600),
    (b'{"jsonrpc":"2.0","id":{},"method":"GetTask"}', -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"a\\u0000"}}', -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{}}', -32601),
    (b'{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}', -32004),
    (b'{"jsonrpc":"2.0","id":1,"method":"GetExtendedAgentCard"}', -32004),
    (b'{"jsonrpc":"2.0","id":1,"method":"CreateTaskPushNotificationConfig"}', -32003),
    (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"\' OR 1=1"}}', -32001),
]


@pytest.mark.parametrize(("raw", "expected"), BODIES)
def test_malformed_request_has_the_code_that_a2a_defines(hub, raw, expected):
    answer = hub.post(raw)
    assert (answer.status, code(answer.body)) == (200, expected)


def test_push_configuration_in_a_message_is_refused(hub):
    push = {"taskPushNotificationConfig": {"url": "https://example.com"}}
    reply = hub.rpc("SendMessage", {"message": TEXT, "configuration": push})
    assert code(reply) == -32003


@pytest.mark.parametrize("version", ["", "0.3", "2.0", "x" * 1000])
def test_other_protocol_version_is_refused(hub, version):
    raw = b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"x"}}'
    assert code(hub.post(raw, version=version).body) == -32009


def test_body_above_the_limit_is_refused_before_it_is_read(hub):
    assert hub.post(b" " * 300_000).body["code"] == "PAYLOAD_TOO_LARGE"


def test_task_beyond_its_deadline_fails_and_stays_failed(tmp_path):
    one_agent = SETTINGS.split("[[a2a.agents]]")[1]
    settings = f"[a2a]\ndeadline_seconds = 1\n[[a2a.agents]]{one_agent}"
    with serve(tmp_path, settings=settings) as served:
        hub = A2aHub(served, made_token(served, "caller", ["hub:post"]), "", "")
        assert served.connect(None).get(CARD).body["name"] == "builder"
        reply = hub.rpc("SendMessage", {"message": TEXT})["result"]["task"]
        assert reply["status"]["state"] == "TASK_STATE_FAILED"
        builder = served.http.get("/api/v1/inbox?name=builder").body["entries"]
        acknowledged = {"ids": [builder[0]["id"]], "name": "builder"}
        assert served.http.post("/api/v1/inbox/acknowledge", acknowledged).status == 200
        later = hub.rpc("GetTask", {"id": reply["id"]})["result"]
        assert later["status"] == reply["status"]


def test_agent_with_a_stream_gets_one_envelope_for_each_message(hub):
    params = {"message": {**TEXT, "messageId": "env-1"}, "configuration": SOON}
    task = hub.rpc("SendMessage", params, agent="team")["result"]["task"]["id"]
    again = hub.rpc("SendMessage", params, agent="team")["result"]["task"]["id"]
    assert again == task
    got = hub.served.http.post("/v1/receive", {"stream": "work/a2a", "max": 10}).body
    (envelope,) = [row["deliver"] for row in got["deliveries"]]
    assert (envelope["type"], envelope["payload"]["text"]) == ("a2a.message", "go")
    assert envelope["payload"]["task"] == task
    settle = {"receiver": got["receiver"], "ids": [envelope["id"]]}
    assert hub.served.http.post("/v1/ack", settle).status == 200
    body = {"ids": [envelope["payload"]["entry"]], "name": "team"}
    assert hub.served.http.post("/api/v1/inbox/acknowledge", body).status == 200
    shown = hub.rpc("GetTask", {"id": task}, agent="team")["result"]
    assert shown["status"]["state"] == "TASK_STATE_COMPLETED"


def test_agent_with_a_stream_refuses_work_while_the_courier_is_off(tmp_path):
    settings = SETTINGS + "[roles]\ncourier = false\n"
    with serve(tmp_path, settings=settings) as served:
        alone = A2aHub(served, made_token(served, "caller", ["hub:post"]), "", "")
        params = {"message": TEXT, "configuration": SOON}
        refused = alone.rpc("SendMessage", params, agent="team")
        assert refused["code"] == "INCOMING_COURIER_OFF"
        assert served.rows("SELECT * FROM x_entries") == []
