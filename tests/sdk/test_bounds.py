"""Pauses and ceilings in threads and in asyncio, and by commands."""

import asyncio
import json
import subprocess
import sys

import pytest

from appliance.sdk.aio import AsyncClient
from appliance.sdk.client import Client
from appliance.sdk.errors import NotFound, Paused
from appliance.sdk.models import NewMessage
from tests.support.servedhub import serve

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    with serve(folder) as hub:
        hub.channel_with_topic("general")
        yield folder


def agentlip(workspace, *words):
    command = [sys.executable, "-m", "appliance", *words, "--workspace", str(workspace)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_both_clients_pause_and_resume(workspace):
    async def later():
        async with AsyncClient(workspace) as client:
            assert [pause.subject for pause in await client.list_pauses()] == ["ada"]
            await client.resume("ada")
            return await client.list_pauses()

    with Client(workspace) as client:
        assert client.pause("ada", reason="freeze", seconds=60).until is not None
        with pytest.raises(Paused) as refused:
            client.send_message("general/t", "ada", "hello")
        assert refused.value.details["reason"] == "freeze"
        (outcome,) = client.send_messages([NewMessage("general/t", "ada", "hello")])
        assert isinstance(outcome, Paused)
        assert asyncio.run(later()) == []
        client.send_message("general/t", "ada", "hello")
        assert client.pause(topic_id="general/t").topic == "general/t"
        assert client.pause(everybody=True).kind == "all"
        client.resume(topic_id="general/t")
        client.resume(everybody=True)
        with pytest.raises(NotFound):
            client.resume("ada")


def test_client_sets_and_removes_a_ceiling(workspace):
    with Client(workspace) as client:
        assert client.set_ceiling("bob", messages=1, cost=2.5).cost == 2.5
        client.send_message("general/t", "bob", "hello")
        assert client.list_ceilings()[0].usage.messages == 1
        with pytest.raises(Paused):
            client.send_message("general/t", "bob", "hello")
        client.remove_ceiling("bob")
        assert client.list_ceilings() == []
        client.resume("bob")


def test_commands_pause_and_resume(workspace):
    done = agentlip(workspace, "pause", "--topic", "general/t", "--until", "2h", "--reason", "busy")
    assert done.stdout.startswith("paused topic general/t until 2"), done
    listed = json.loads(agentlip(workspace, "pauses", "--json").stdout)
    assert [(row["topic"], row["by"], row["reason"]) for row in listed] == [
        ("general/t", "server", "busy")
    ]
    assert agentlip(workspace, "resume", "--topic", "general/t").stdout == (
        "resumed topic general/t\n"
    )
    again = agentlip(workspace, "resume", "--topic", "general/t")
    assert (again.returncode, "agentlip pauses" in again.stderr) == (1, True)
    for until in ("2901-01-01", "soon", "0s"):
        wrong = agentlip(workspace, "pause", "--all", "--until", until)
        assert wrong.returncode == 1, wrong


def test_paused_command_has_the_exit_code_of_a_conflict(workspace):
    agentlip(workspace, "pause", "--principal", "eve", "--reason", "night")
    words = ("msg", "send", "--sender", "eve", "--topic-id", "general/t", "--content", "x")
    refused = agentlip(workspace, *words)
    assert refused.returncode == 2
    assert "agentlip resume --principal eve; paused by server without an end: night" in (
        refused.stderr
    )
    agentlip(workspace, "resume", "--principal", "eve")


def test_ceiling_commands_show_the_use_of_today(workspace):
    assert agentlip(workspace, "ceiling", "set", "cy", "--messages", "5").returncode == 0
    agentlip(
        workspace, "msg", "send", "--sender", "cy", "--topic-id", "general/t", "--content", "x"
    )
    table = agentlip(workspace, "ceiling", "list").stdout
    assert "1 of 5" in table, table
    assert agentlip(workspace, "ceiling", "remove", "cy").stdout == "cy has no ceiling now\n"


def test_report_outside_a_turn_is_refused(workspace):
    refused = agentlip(workspace, "agent", "report", "--tokens", "5")
    assert refused.returncode == 1
    assert "this is not a turn" in refused.stderr
