"""The tools of courier, outbox and inbox, served. A token sees only what it may use."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from appliance.busfile.file import BusPaths, connect, transaction
from tests.support.servedhub import ServedHub


class Agent:
    def __init__(self, hub: ServedHub, *scopes: str) -> None:
        token = ""
        if scopes:
            name = "-".join(scopes).replace(":", ".")
            body = {"name": name, "scopes": list(scopes)}
            token = hub.request("POST", "/api/v1/tokens", body)["secret"]
        self.http = hub.connect(token)

    def ask(self, method: str, query: str = "", **params: Any) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.http.post("/mcp" + query, message)

    def names(self, tools: str = "all") -> set[str]:
        return {tool["name"] for tool in self.listed(tools)}

    def listed(self, tools: str = "all") -> Any:
        return self.ask("tools/list", f"?tools={tools}").body["result"]["tools"]

    def call(self, tool: str, **arguments: Any) -> Any:
        result = self.ask("tools/call", name=tool, arguments=arguments).body["result"]
        assert not result["isError"], result
        return result["structuredContent"]

    def refusal(self, tool: str, **arguments: Any) -> str:
        result = self.ask("tools/call", name=tool, arguments=arguments).body["result"]
        assert result["isError"], result
        return str(result["content"][0]["text"])


@pytest.fixture
def agent(hub: ServedHub) -> Iterator[Agent]:
    agent = Agent(hub)
    yield agent
    agent.http.close()


def test_envelope_is_enqueued_once_received_and_acked(agent: Agent) -> None:
    for duplicate in (False, True):
        made = agent.call("courier_enqueue", to="jobs", type="build", payload=[1], id="e1")
        assert (made["id"], made.get("duplicate", False)) == ("e1", duplicate)
    got = agent.call("courier_receive", stream="jobs", max=5)
    (envelope,) = [each["deliver"] for each in got["deliveries"]]
    assert (envelope["type"], envelope["payload"]) == ("build", [1])
    lease = {"receiver": got["receiver"], "ids": ["e1"]}
    assert agent.call("courier_ack", **lease)["done"] == ["e1"]
    assert "LEASE_LOST" in agent.refusal("courier_ack", **lease)
    assert agent.call("courier_receive", stream="jobs")["deliveries"] == []


def test_send_is_accepted_once_inspected_and_dropped(agent: Agent) -> None:
    agent.http.post("/broker/v1/meshes", {"slug": "default"})  # without members: sends wait
    send = {"to": "#alerts", "message": "build done", "client_message_id": "s1"}
    assert agent.call("outbox_send", **send) == {"client_message_id": "s1", "status": "queued"}
    assert agent.call("outbox_send", **send)["client_message_id"] == "s1"
    assert "IDEMPOTENCY_KEY_REUSED" in agent.refusal("outbox_send", **send | {"message": "other"})
    assert agent.call("outbox_inspect", id="s1")["message"] == "build done"
    assert agent.call("outbox_drop", id="s1")["send"]["client_message_id"] == "s1"
    assert agent.call("outbox_inspect", id="s1")["message"] is None


@pytest.mark.parametrize(
    ("scope", "tools"),
    [
        ("outbox:send", {"outbox_send"}),
        ("outbox:read", {"outbox_inspect"}),
        ("inbox:read", {"inbox_list", "inbox_topics"}),
        ("streams:jobs:subscribe", {"courier_enqueue", "courier_receive", "courier_ack"}),
    ],
)
def test_token_sees_tools_of_its_scopes_and_free_tools(
    hub: ServedHub, agent: Agent, scope: str, tools: set[str]
) -> None:
    limited = Agent(hub, scope)
    others = {name for name in agent.names() if name.partition("_")[0] in ("outbox", "inbox")}
    assert limited.names() & (others | tools) >= tools
    assert limited.names().isdisjoint(others - tools)
    assert "post_message" not in limited.names()
    assert "FORBIDDEN" in limited.refusal("post_message", topic_id="t", sender="a", content="x")
    limited.http.close()


@pytest.mark.parametrize("written", ["null", "text"])
def test_optional_arguments_can_be_null_and_numbers_can_be_text(agent: Agent, written: str) -> None:
    """Each optional argument of every tool. The call ends at an unknown argument behind them."""
    checked = 0
    for tool in agent.listed():
        schema = tool["inputSchema"]
        arguments: dict[str, Any] = {}
        for name, part in schema["properties"].items():
            if name in schema.get("required", ()):
                continue
            if written == "null":
                arguments[name] = None
            elif part.get("type") in ("integer", "number"):
                arguments[name] = str(part.get("minimum", 1))
        checked += len(arguments)
        answer = agent.ask("tools/call", name=tool["name"], arguments={**arguments, "zzz": 1})
        text = answer.body["result"]["content"][0]["text"]
        if schema.get("additionalProperties") is False:
            assert "unknown field `zzz`" in text
        assert "expected `" not in text
    assert checked > 10


def test_arguments_are_read_as_models_write_them(agent: Agent, hub: ServedHub) -> None:
    channel = hub.request("POST", "/api/v1/channels", {"name": "as-written"})["channel"]["id"]
    body = {"channel_id": channel, "title": "t"}
    topic = hub.request("POST", "/api/v1/topics", body)["topic"]["id"]
    for given in ({"limit": None}, {"limit": "10"}, {"before_id": None}, {"max_chars": "5"}):
        assert agent.call("read_topic", topic_id=topic, **given) == {"messages": []}
    assert agent.call("wait_events", after="0", wait_s="0", name=None)["events"]
    assert agent.ask("tools/call", name="status", arguments=None).body["result"]["isError"] is False
    for given in ({"limit": "ten"}, {"limit": "0"}, {"limit": "1.5"}, {"limit": ""}):
        assert "limit" in agent.refusal("read_topic", topic_id=topic, **given)
    assert "topic_id" in agent.refusal("read_topic", topic_id=None)
    text = agent.call("post_message", topic_id=topic, sender="a", content="null")
    assert agent.call("read_message", message_id=text["message_id"])["content"] == "null"


def test_agent_of_the_bus_acks_beats_and_hands_in_its_task(agent: Agent, hub: ServedHub) -> None:
    ada = Agent(hub, "bus:write")
    name = "bus.write"
    with closing(connect(BusPaths(hub.datadir.workspace))) as connection, transaction(connection):
        connection.execute("INSERT INTO workers VALUES (?, 'WORKING', '', '', '', 1, 1)", (name,))
    sent = agent.call("bus_send", from_agent="lead", type="note", to_agent=name)
    (message,) = ada.call("bus_poll", agent=name)["messages"]
    assert ada.call("bus_ack", agent=name, seq=message["seq"])["last_acked_seq"] == sent["seq"]
    assert ada.call("bus_poll", agent=name)["messages"] == []
    assert ada.call("send_heartbeat", agent=name, task=name, progress="0.5")["agent"] == name
    ada.call("claim_task", task="path:src/**", agent=name)
    assert ada.call("release_claim", task="path:src/**", agent=name) == {"released": True}
    change = {"task": name, "from": "WORKING", "actor": name}
    done = ada.call("change_task_state", **change, to="IN_REVIEW")
    assert (done["state"], done["activity"], done["progress"]) == ("IN_REVIEW", "working", 0.5)
    assert "BUS_STATE_NOT_ALLOWED" in ada.refusal(
        "change_task_state", task=name, **{"from": "IN_REVIEW"}, to="APPROVED", actor=name
    )
    assert "SENDER_NOT_ALLOWED" in ada.refusal("bus_ack", agent="lead", seq=1)


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", None])
def test_path_may_end_in_a_slash(agent: Agent, version: str | None) -> None:
    headers = {"MCP-Protocol-Version": version} if version else {}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert agent.http.post("/mcp/", message, headers=headers).body["result"]["tools"]
