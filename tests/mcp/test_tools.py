"""The tools of courier, outbox and inbox, served. A token sees only what it may use."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.servedhub import ServedHub


class Agent:
    def __init__(self, hub: ServedHub, *scopes: str) -> None:
        token = ""
        if scopes:
            name = "-".join(scopes).replace(":", ".")
            body = {"name": name, "scopes": list(scopes)}
            token = hub.request("POST", "/api/v1/tokens", body)["secret"]
        self.http = hub.connect(token)

    def ask(self, method: str, **params: Any) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.http.post("/mcp", message)

    def names(self) -> set[str]:
        return {tool["name"] for tool in self.ask("tools/list").body["result"]["tools"]}

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
def test_token_sees_the_tools_of_its_scopes_and_what_is_free_on_loopback(
    hub: ServedHub, agent: Agent, scope: str, tools: set[str]
) -> None:
    limited = Agent(hub, scope)
    others = {name for name in agent.names() if name.partition("_")[0] in ("outbox", "inbox")}
    assert limited.names() & (others | tools) >= tools
    assert limited.names().isdisjoint(others - tools)
    assert "post_message" not in limited.names()
    assert "FORBIDDEN" in limited.refusal("post_message", topic_id="t", sender="a", content="x")
    limited.http.close()
