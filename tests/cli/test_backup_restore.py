"""`agentlip backup restore`, as a process, with a served appliance before and after."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.workspace import swap
from tests.support.commands import environment, run, succeed
from tests.support.hubprocess import HubProcess
from tests.support.restored_workspace import KILLED, BackedUp

pytestmark = pytest.mark.slow


@pytest.fixture
def hub(tmp_path: Path):
    hub = HubProcess(tmp_path / "w", "--no-limits")
    hub.start()
    yield hub
    hub.stop()


def post(hub: HubProcess, text: str) -> str:
    channels = hub.request("GET", "/api/v1/channels")["channels"]
    if not channels:
        channels = [hub.request("POST", "/api/v1/channels", {"name": "general"})["channel"]]
    channel = channels[0]["id"]
    topics = hub.request("GET", f"/api/v1/channels/{channel}/topics")["topics"]
    if not topics:
        body = {"channel_id": channel, "title": "Builds"}
        topics = [hub.request("POST", "/api/v1/topics", body)["topic"]]
    body = {"topic_id": topics[0]["id"], "sender": "anna", "content_raw": text}
    return hub.request("POST", "/api/v1/messages", body)["message"]["id"]


def texts(hub: HubProcess) -> list[str]:
    events = [e for e in hub.events() if e["name"] == "message.created"]
    return [e["data_json"]["message"]["content_raw"] for e in events]


def check_events(hub: HubProcess) -> None:
    succeed("doctor", "--all", "--json", "--group", "events", cwd=hub.workspace)


def backup(hub: HubProcess, *arguments: str):
    return run("agentlip", "backup", *arguments, cwd=hub.workspace)


def test_restore_of_a_served_appliance(hub: HubProcess) -> None:
    post(hub, "kept")
    made = backup(hub, "create", "--json").json
    lost = post(hub, "lost")
    epoch = hub.request("GET", "/health")["epoch"]

    running = backup(hub, "restore", made["name"], "--yes")
    assert running.code == 2
    assert "Hint: agentlipd down" in running.err

    planned = backup(hub, "restore", "--latest", "--plan", "--json").json
    assert planned["running"] is True
    assert lost in json.dumps(planned["notices"])

    hub.stop()
    unconfirmed = backup(hub, "restore", "--latest", "--into", "new folder")
    assert unconfirmed.code != 0
    assert "agentlip backup restore --latest --into 'new folder' --yes" in unconfirmed.err

    done = backup(hub, "restore", made["name"], "--yes")
    assert done.code == 0, done
    assert lost in done.out
    assert "to undo: agentlip backup restore" in done.out

    hub.start()
    assert texts(hub) == ["kept"]
    assert hub.request("GET", "/health")["epoch"] != epoch
    newest = hub.events()[-1]["event_id"]
    later = post(hub, "later")
    assert later > lost
    assert hub.events()[-1]["event_id"] > 2**32 > newest

    check_events(hub)


def test_restore_of_one_store_of_a_served_appliance(hub: HubProcess) -> None:
    post(hub, "kept")
    made = backup(hub, "create", "--json").json["name"]
    hub.stop()
    assert backup(hub, "restore", "--latest", "--yes").code == 0
    hub.start()
    post(hub, "lost")
    planned = backup(hub, "restore", "--latest", "--store", "hub", "--plan", "--json").json
    assert planned["name"] == made, "not the backup that a restore made"
    assert set(planned["replaced"]) >= {".agentlip/db.sqlite3", ".agentlip/auth.sqlite3"}
    assert ".agentlip/token" in planned["kept"]
    hub.stop()
    assert backup(hub, "restore", made, "--store", "hub", "--revive").code == 1
    unconfirmed = backup(hub, "restore", made, "--store", "hub")
    assert f"agentlip backup restore {made} --store hub --yes" in unconfirmed.err
    assert backup(hub, "restore", made, "--store", "hub", "--yes").code == 0
    hub.start()
    assert texts(hub) == ["kept"]
    check_events(hub)


COMMANDS = [
    ("backup", "list"),
    ("recover", "outbox", "--yes"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_interrupted_restore_is_settled_before_a_command_works_on_the_stores(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    workspace = BackedUp(tmp_path / "w")
    made = workspace.back_up()
    workspace.add(2)
    for step, rows in (("prepared", 7), ("committed", 5)):
        script = KILLED.replace("left -= 1\n    if left == 0:", f"if step == '{step}':")
        arguments = [str(workspace.datadir.workspace), made.name, "1"]
        killed = [sys.executable, "-c", script, *arguments]
        assert subprocess.run(killed, env=environment(), check=False).returncode < 0
        assert swap.is_pending(workspace.datadir)
        assert run("agentlip", *command, cwd=workspace.datadir.workspace).code == 0
        assert not swap.is_pending(workspace.datadir)
        assert workspace.rows("SELECT count(*) FROM messages") == [(rows,)]
