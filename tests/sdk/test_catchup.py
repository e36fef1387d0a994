"""Catching up in threads and in asyncio, and by commands."""

import asyncio
import json
import subprocess
import sys

import pytest

from appliance.sdk.aio import AsyncClient
from appliance.sdk.client import Client
from appliance.sdk.errors import Refused
from tests.support.servedhub import serve

pytestmark = pytest.mark.slow


def agentlip(workspace, *words):
    command = [sys.executable, "-m", "appliance", *words, "--workspace", str(workspace)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_both_clients_and_commands_catch_up(tmp_path):
    async def later(topic_id, since):
        async with AsyncClient(tmp_path) as client:
            await client.write_handoff(topic_id, "two", 1, name="bob")
            await client.reopen_topic(topic_id, "again", name="bob")
            return await client.catch_up("bob", since=since)

    with serve(tmp_path) as hub, Client(tmp_path) as client:
        _, topic_id = hub.channel_with_topic("general")
        sent = client.send_message(topic_id, "boss", "decided", to=["ada"])
        assert client.pin_message(sent.message.id, name="ada").changed
        assert client.write_handoff("general/t", "one", name="ada").state.handoff.version == 1
        with pytest.raises(Refused):
            client.write_handoff("general/t", "unseen", name="ada")
        assert client.resolve_topic("general/t", "done", name="ada").changed
        made = client.catch_up("ada", tokens=500)
        assert made.tokens <= 500
        assert [len(part.items) for part in made.parts] == [0, 0, 1, 1, 1]
        assert [pinned.message.id for pinned in client.list_pins()] == [sent.message.id]
        assert client.unpin_message(sent.message.id, name="ada").changed
        following = asyncio.run(later(topic_id, made.next))
        assert [len(part.items) for part in following.parts] == [0, 0, 0, 0, 1]
        assert client.topic_state(topic_id).state.handoff.note == "two"

        shown = agentlip(tmp_path, "catch-up", "--as", "ada", "--since", str(following.next))
        assert shown.stdout.startswith(f"# Catch-up for ada, next {following.next}\n## Entries\n")
        as_json = agentlip(tmp_path, "catch-up", "--as", "ada", "--json").stdout
        assert json.loads(as_json)["name"] == "ada"
        conflict = agentlip(tmp_path, "topic", "handoff", "general/t", "--note", "x", "--as", "a")
        assert conflict.returncode == 2
        assert "agentlip topic show" in conflict.stderr
