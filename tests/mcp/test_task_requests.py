"""Calls of the worker bus as tasks, in both eras of the protocol."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import mcp_types
import pytest

from tests.support.servedhub import ServedHub

EXTENSION = "io.modelcontextprotocol/tasks"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION: {}}},
}


class Wire:
    """One client. Results are those of the official types; errors are codes."""

    def __init__(self, hub: ServedHub, token: str = "") -> None:
        self.http = hub.connect(token)

    def legacy(self, method: str, version: str = "2025-11-25", **params: Any) -> Any:
        return self._send(method, params, {"MCP-Protocol-Version": version})

    def modern(self, method: str, meta: Any = META, **params: Any) -> Any:
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
        name = params.get("name", params.get("taskId"))
        if name:
            headers["Mcp-Name"] = name
        return self._send(method, {**params, "_meta": meta}, headers)

    def _send(self, method: str, params: Any, headers: dict[str, str]) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        body = self.http.post("/mcp?tools=all", message, headers=headers).body
        return body["error"]["code"] if "error" in body else body["result"]


@pytest.fixture
def wire(hub: ServedHub) -> Wire:
    return Wire(hub)


@pytest.fixture
def held(hub: ServedHub, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Arguments that claim what another agent has, for as long as the test runs."""
    task = request.node.name[:60]
    hub.request("POST", "/bus/v1/claims", {"task": task, "agent": "eve", "lease_seconds": 600})
    return {"task": task, "agent": "ada", "wait": 600}


def release(hub: ServedHub, held: dict[str, Any]) -> None:
    hub.request("POST", "/bus/v1/claims/release", {"task": held["task"], "agent": "eve"})


def begin(wire: Wire, tool: str, arguments: Any, **options: Any) -> str:
    made = wire.legacy("tools/call", name=tool, arguments=arguments, task=options)
    task = mcp_types.CreateTaskResult.model_validate(made).task
    assert task.status == "working"
    assert task.poll_interval
    return task.task_id


def test_tasks_are_offered_to_versions_that_have_them(wire: Wire) -> None:
    for version, offered in (("2025-11-25", True), ("2025-06-18", False)):
        result = wire.legacy("initialize", protocolVersion=version)
        assert ("tasks" in result["capabilities"]) is offered
        mcp_types.InitializeResult.model_validate(result)
    tools = {tool["name"]: tool for tool in wire.legacy("tools/list")["tools"]}
    optional = {name for name, tool in tools.items() if "execution" in tool}
    assert optional == {"claim_task", "bus_poll", "job_status"}
    assert tools["claim_task"]["execution"] == {"taskSupport": "optional"}


def test_claim_as_a_task_ends_when_the_holder_releases(
    wire: Wire, hub: ServedHub, held: dict[str, Any]
) -> None:
    task = begin(wire, "claim_task", held, ttl=700_000)
    state = mcp_types.GetTaskResult.model_validate(wire.legacy("tasks/get", taskId=task))
    assert (state.status, state.ttl) == ("working", 700_000)
    assert task in {each["taskId"] for each in wire.legacy("tasks/list")["tasks"]}
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(Wire(hub).legacy, "tasks/result", taskId=task)
        assert wire.legacy("tasks/get", taskId=task)["status"] == "working"
        release(hub, held)
        result = waiting.result(20)
    assert result["structuredContent"]["claimed_by"] == "ada"
    assert result["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": task}
    assert wire.legacy("tasks/get", taskId=task)["status"] == "completed"
    assert wire.legacy("tasks/result", taskId=task) == result
    assert wire.legacy("tasks/cancel", taskId=task) == -32602


def test_cancelled_task_stays_cancelled(wire: Wire, hub: ServedHub, held: dict[str, Any]) -> None:
    task = begin(wire, "claim_task", held)
    cancelled = wire.legacy("tasks/cancel", taskId=task)
    assert mcp_types.CancelTaskResult.model_validate(cancelled).status == "cancelled"
    release(hub, held)
    assert wire.legacy("tasks/get", taskId=task)["status"] == "cancelled"
    assert wire.legacy("tasks/result", taskId=task) == -32600


def test_wrong_requests_are_refused(wire: Wire, hub: ServedHub, held: dict[str, Any]) -> None:
    call = {"name": "claim_task", "arguments": held}
    assert wire.legacy("tools/call", name="status", arguments={}, task={}) == -32601
    assert wire.legacy("tools/call", **{**call, "arguments": {}}, task={}) == -32602
    assert wire.legacy("tools/call", **call, task={"ttl": -1}) == -32602
    assert wire.legacy("tasks/get", taskId="unknown") == -32602
    assert wire.legacy("tasks/list", cursor="x") == -32602
    without = wire.legacy("tools/call", "2025-06-18", name="status", arguments={}, task={})
    assert without["isError"] is False
    other = hub.request("POST", "/api/v1/tokens", {"name": "other", "scopes": ["bus:write"]})
    task = begin(wire, "claim_task", held)
    assert Wire(hub, other["secret"]).legacy("tasks/get", taskId=task) == -32602
    assert Wire(hub, other["secret"]).legacy("tasks/list") == {"tasks": []}


def test_waiting_call_in_new_protocol_becomes_task(
    wire: Wire, hub: ServedHub, held: dict[str, Any]
) -> None:
    call = {"name": "claim_task", "arguments": held}
    free = {**held, "task": held["task"] + "-free"}
    assert wire.modern("tools/call", name="claim_task", arguments=free)["isError"] is False
    assert wire.modern("tools/call", name="claim_task", arguments={**held, "wait": 0})["isError"]
    task = wire.modern("tools/call", **call)
    assert (task["resultType"], task["status"]) == ("task", "working")
    task_id = task["taskId"]
    working = wire.modern("tasks/get", taskId=task_id)
    assert (working["resultType"], working["status"]) == ("complete", "working")
    assert working["ttlMs"] >= 600_000
    assert wire.modern("tasks/update", taskId=task_id, inputResponses={})["resultType"]
    release(hub, held)
    ended = wire.modern("tasks/get", taskId=task_id)
    assert ended["status"] == "completed"
    assert ended["result"]["structuredContent"]["claimed_by"] == "ada"
    assert wire.modern("tasks/cancel", taskId=task_id)["resultType"] == "complete"
    plain = {**META, "io.modelcontextprotocol/clientCapabilities": {}}
    assert wire.modern("tasks/get", plain, taskId=task_id) == -32021
    assert wire.modern("tools/call", plain, **{**call, "arguments": {**held, "wait": 0.1}})[
        "isError"
    ]
