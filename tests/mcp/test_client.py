"""The official client against a served hub: both eras over HTTP, and over standard input."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.support.commands import command, environment
from tests.support.servedhub import ServedHub

pytestmark = pytest.mark.slow

WAYS = [("http", "auto"), ("http", "legacy"), ("stdio", "auto"), ("stdio", "legacy")]
TOOLS = {
    "status", "list_channels", "list_topics", "read_topic", "read_message", "wait_events",
    "post_message", "create_topic", "create_channel", "edit_message", "delete_message", "search",
    "doctor", "courier_enqueue", "courier_receive", "courier_ack", "outbox_send", "outbox_inspect",
    "outbox_drop", "inbox_list", "inbox_topics", "inbox_subscribe", "claim_task", "renew_claim",
    "release_claim", "complete_task", "change_task_state", "send_heartbeat", "bus_send", "bus_ack",
    "bus_poll", "ask_person", "my_inbox", "acknowledge", "receipts", "catch_up", "read_handoff",
    "write_handoff", "put_file", "read_file",
    "job_run", "job_status",
}  # fmt: skip


@asynccontextmanager
async def connected(
    hub: ServedHub, way: str, mode: str, token: str | None = "", tools: str = "all"
) -> AsyncIterator[Any]:
    """`token`: the workspace's own if empty; None: none."""
    if way == "stdio":
        program, *arguments = command(
            "agentlip", "mcp", "--workspace", str(hub.workspace), "--tools", tools
        )
        server = StdioServerParameters(command=program, args=arguments, env=environment())
        async with Client(stdio_client(server), mode=mode) as client:
            yield client
        return
    headers = {} if token is None else {"Authorization": f"Bearer {token or hub.token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(
            streamable_http_client(f"{hub.url}/mcp?tools={tools}", http_client=http), mode=mode
        ) as client,
    ):
        yield client


async def call(client: Any, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content[0].text
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


async def refused(client: Any, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return json.loads(result.content[0].text)


@pytest.mark.parametrize(("way", "mode"), WAYS)
def test_agent_reads_posts_and_searches(hub: ServedHub, way: str, mode: str) -> None:
    async def talk() -> None:
        async with connected(hub, way, mode) as client:
            expected = "2025-11-25" if mode == "legacy" else "2026-07-28"
            assert client.protocol_version == expected
            listed = await client.list_tools()
            assert {tool.name for tool in listed.tools} == TOOLS
            await story(client, f"{way}-{mode}")

    asyncio.run(talk())


async def story(client: Any, name: str) -> None:
    """Every tool once, each result checked by the client against the tool's own schema."""
    before = await call(client, "status")
    assert before["ready"] is True
    channel = (await call(client, "create_channel", name=name, description="a test"))["channel_id"]
    channels = (await call(client, "list_channels"))["channels"]
    assert {"id": channel, "name": name, "description": "a test"} in channels
    topic = (await call(client, "create_topic", channel=name, title="t"))["topic_id"]
    (listed,) = (await call(client, "list_topics", channel=channel))["topics"]
    assert listed["id"] == topic
    posts = [
        await call(client, "post_message", topic_id=topic, sender="a", content=f"grüße {n}")
        for n in range(3)
    ]
    page = await call(client, "read_topic", topic_id=topic, limit=2)
    assert [message["content"] for message in page["messages"]] == ["grüße 1", "grüße 2"]
    assert page["has_more"] is True
    older = await call(client, "read_topic", topic_id=topic, before_id=page["cursor"])
    assert [message["content"] for message in older["messages"]] == ["grüße 0"]
    results = await call(client, "search", query="grüße 1", channel=name)
    assert [hit["message_id"] for hit in results["messages"]] == [posts[1]["message_id"]]
    assert results["messages"][0]["snippet"]
    message_id = posts[0]["message_id"]
    done = await call(client, "edit_message", message_id=message_id, content="x" * 50)
    assert done["version"] == 2
    wrong = await refused(
        client, "edit_message", message_id=message_id, content="y", expected_version=1
    )
    assert wrong["code"] == "VERSION_CONFLICT"
    assert wrong["hint"]
    cut = await call(client, "read_topic", topic_id=topic, max_chars=10)
    assert cut["messages"][0]["content"] == "x" * 10
    assert cut["messages"][0]["truncated"] is True
    put = await call(client, "put_file", text="grüße\n" * 1000)
    part = await call(client, "read_file", ref=put["ref"], bytes_max=7)
    assert (part["text"], part["size"], part["next"]) == ("grüße", 8000, 7)
    rest = await call(client, "read_file", ref=put["ref"], start=7999)
    assert (rest["text"], "next" in rest) == ("\n", False)
    unknown = await refused(client, "read_file", ref="sha256:" + "0" * 64)
    assert unknown["code"] == "BLOB_NOT_FOUND"
    await call(client, "delete_message", message_id=message_id, actor="a")
    repeated = await call(client, "delete_message", message_id=message_id, actor="a")
    assert "event_id" not in repeated
    events = await call(client, "wait_events", after=before["newest_event"], topic_id=topic)
    assert [event["name"] for event in events["events"]] == [
        "topic.created", *["message.created"] * 3, "message.edited", "message.deleted",
    ]  # fmt: skip
    assert events["epoch"] == before["epoch"]


@pytest.mark.parametrize(("way", "mode"), [("http", "auto"), ("stdio", "legacy")])
def test_wait_events_returns_messages_of_others(hub: ServedHub, way: str, mode: str) -> None:
    channel = hub.request("POST", "/api/v1/channels", {"name": f"wait-{way}"})["channel"]["id"]
    body = {"channel_id": channel, "title": "t"}
    topic = hub.request("POST", "/api/v1/topics", body)["topic"]["id"]

    async def wait() -> None:
        async with connected(hub, way, mode) as client:
            began = time.monotonic()
            waiting = asyncio.create_task(call(client, "wait_events", topic_id=topic, wait_s=30))
            # Posted again and again: nobody outside can see the moment the wait begins.
            while not waiting.done():
                await call(client, "post_message", topic_id=topic, sender="b", content="now")
                await asyncio.wait([waiting], timeout=0.1)
            events = await waiting
            assert time.monotonic() - began < 25
            first = events["events"][0]
            assert first["message"]["content"] == "now"
            following = await call(
                client, "wait_events", after=events["cursor"], epoch=events["epoch"],
                topic_id=topic, wait_s=0,
            )  # fmt: skip
            numbers = [event["id"] for event in events["events"] + following["events"]]
            assert numbers == sorted(set(numbers))

    asyncio.run(wait())


def test_wait_events_times_out_with_a_cursor(hub: ServedHub) -> None:
    async def wait() -> None:
        async with connected(hub, "http", "auto") as client:
            head = (await call(client, "status"))["newest_event"]
            events = await call(client, "wait_events", wait_s=0.05)
            assert events["events"] == []
            assert events["cursor"] >= head
            stale = await refused(client, "wait_events", after=0, epoch="another")
            assert stale["code"] == "EPOCH_CHANGED"
            assert stale["details"]["epoch"] == events["epoch"]

    asyncio.run(wait())


def test_only_reading_works_without_a_token_on_loopback(hub: ServedHub) -> None:
    async def read_with_client() -> None:
        async with connected(hub, "http", "auto", token=None) as client:
            assert (await call(client, "status"))["you"] == "anonymous"
            await call(client, "list_channels")
            error = await refused(client, "create_channel", name="nobody")
            assert error["code"] == "UNAUTHORIZED"
            assert "token" in error["hint"]

    asyncio.run(read_with_client())


def test_bridge_reconnects_to_a_restarted_hub(hub: ServedHub) -> None:
    async def outlive() -> None:
        async with connected(hub, "stdio", "auto") as client:
            await call(client, "status")
            hub.kill()
            nobody = await client.call_tool("status", {})
            assert nobody.is_error
            assert "no hub" in nobody.content[0].text
            hub.start()
            assert (await call(client, "status"))["ready"] is True

    asyncio.run(outlive())


def test_agent_asks_a_person_and_comes_back_for_the_answer(hub: ServedHub) -> None:
    async def talk() -> None:
        async with connected(hub, "http", "auto") as client:
            given = {"text": "Deploy?", "sender": "ci", "choices": ["yes", "no"], "wait_s": 0}
            asked = await call(client, "ask_person", **given, idempotency_key="deploy")
            assert (asked["state"], "answer" in asked) == ("waiting", False)
            path = f"/api/v1/asks/{asked['ask_id']}/answer"
            hub.request("POST", path, {"answer": "yes", "sender": "eve"})
            answered = await call(client, "ask_person", ask_id=asked["ask_id"])
            assert (answered["answer"], answered["answered_by"]) == ("yes", "eve")
            again = await call(client, "ask_person", **given, idempotency_key="deploy")
            assert again == answered
            nothing = await refused(client, "ask_person", wait_s=0)
            assert nothing["code"] == "INVALID_INPUT"

    asyncio.run(talk())
