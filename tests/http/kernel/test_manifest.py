"""A missing store is refused by name, with the ways out; a new one is never made silently."""

import json
import os
import shutil

import pytest

from appliance.roles import RolesSettings
from appliance.workspace import manifest
from appliance.workspace.datadir import DataDir
from tests.support.commands import agentlip, agentlipd, start_that_ends
from tests.support.servedhub import ServedHub

pytestmark = pytest.mark.slow

NAMES = (*RolesSettings().stores, "audit", "token", "identity")
EXIT_CONFLICT = 2


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A workspace that was served and stopped."""
    hub = ServedHub(tmp_path_factory.mktemp("kept"), "--no-limits")
    with hub.running():
        hub.send(hub.channel_with_topic("general")[1])
    return hub.workspace


@pytest.fixture
def workspace(kept, tmp_path):
    shutil.copytree(kept, tmp_path / "w")
    return tmp_path / "w"


def lose(workspace, name):
    path = DataDir(workspace).dir / manifest.file_of(name)
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return path


def served_with(workspace, *flags):
    hub = ServedHub.__new__(ServedHub)
    hub.datadir, hub.flags = DataDir(workspace), ("--no-limits",)
    hub.process = hub._client = None
    hub.environment, hub.constants = {}, {}
    hub.log = workspace / "server.log"
    hub.start(*flags)
    return hub


def findings(workspace):
    answer = agentlip("doctor", "--json", "--run", "store.opens,store.record", cwd=workspace)
    checks = json.loads(answer.out)["checks"]
    return [finding for check in checks for finding in check["findings"]]


@pytest.mark.parametrize("name", ["hub", "token", "identity"])
def test_lost_store_is_refused_and_its_loss_can_be_accepted(workspace, name):
    path = lose(workspace, name)
    refused = start_that_ends(workspace)
    assert refused.code == EXIT_CONFLICT, refused
    assert f"Error: {name}: its file .agentlip/{manifest.file_of(name)} is missing" in refused.err
    assert f"agentlipd up --accept-loss {name}" in refused.err
    assert "Traceback" not in refused.err
    assert not path.exists()
    if name != "identity":  # a copy of a member key is needed only where it is used
        (results,) = [f for f in findings(workspace) if f["severity"] == "error"]
        assert results["subject"] == name
        assert f"--accept-loss {name}" in results["hint"]
    hub = served_with(workspace, "--accept-loss", name)
    try:
        assert path.exists()
        line = next(line for line in hub.log_text.splitlines() if "a store was lost" in line)
        assert json.loads(line)["store"] == name
        assert any(
            f["subject"] == name and "created again" in f["sentence"] for f in findings(workspace)
        )
    finally:
        hub.stop()
    again = served_with(workspace)
    again.stop()


def test_lost_stores_log_is_not_applied_to_new_store(workspace):
    path = lose(workspace, "broker")
    path.with_name(path.name + "-wal").write_bytes(b"remains" * 1000)
    assert start_that_ends(workspace).code == EXIT_CONFLICT
    served_with(workspace, "--accept-loss", "broker").stop()
    (kept,) = path.parent.glob("broker.sqlite3.lost-*-wal")
    assert kept.read_bytes() == b"remains" * 1000


def test_store_of_another_workspace_is_refused(workspace, tmp_path):
    other = ServedHub(tmp_path / "other")
    shutil.copy(other.datadir.database("hub"), DataDir(workspace).database("hub"))
    refused = start_that_ends(workspace)
    assert refused.code == EXIT_CONFLICT, refused
    assert "belongs to another workspace" in refused.err
    assert "--accept-loss hub" in refused.err
    served_with(workspace, "--accept-loss", "hub").stop()


def test_lost_store_of_an_older_workspace_is_refused(workspace):
    (DataDir(workspace).dir / manifest.FILE).unlink()
    lose(workspace, "auth")
    assert "Error: auth:" in start_that_ends(workspace).err


def test_workspace_of_an_older_version_gets_a_record(workspace):
    record = DataDir(workspace).dir / manifest.FILE
    record.unlink()
    lose(workspace, "broker")  # as if this version had added that store
    (DataDir(workspace).dir / "commits/broker").unlink()
    served_with(workspace).stop()
    assert set(json.loads(record.read_text())["stores"]) == set(NAMES)


def test_commands_do_not_create_a_lost_store(workspace):
    lose(workspace, "auth")
    for command in (("token", "list"), ("init",)):
        answer = agentlip(*command, cwd=workspace)
        assert answer.code == EXIT_CONFLICT, answer
        assert "auth" in answer.err
    assert not DataDir(workspace).database("auth").exists()


def test_lost_token_can_be_replaced_by_a_new_one(workspace):
    lose(workspace, "token")
    assert "agentlipd up --accept-loss token" in start_that_ends(workspace).err
    assert agentlip("token", "rotate", "server", cwd=workspace).code == 0
    served_with(workspace).stop()


def test_emptied_store_is_lost_too_and_every_way_out_works(workspace):
    """`up` used to say "running" without it, and to ignore the accepted loss."""
    path = DataDir(workspace).database("outbox")
    os.truncate(path, 0)
    refused = start_that_ends(workspace)
    assert refused.code == EXIT_CONFLICT, refused
    assert "Error: outbox: its file .agentlip/outbox.sqlite3 is empty" in refused.err
    assert "agentlipd up --accept-loss outbox" in refused.err
    recovered = agentlip("recover", "outbox", "--yes", cwd=workspace)
    assert recovered.code == 1
    assert "agentlipd up --accept-loss outbox" in recovered.err
    (result,) = [f for f in findings(workspace) if f["severity"] == "error"]
    assert (result["subject"], result["problem"]) == ("outbox", "empty")
    hub = served_with(workspace, "--accept-loss", "outbox")
    try:
        assert path.stat().st_size
        assert hub.http.get("/v1/outbox").status == 200
        os.truncate(path, 0)
        late = agentlipd("up", "--accept-loss", "outbox", cwd=workspace)
        assert late.code == EXIT_CONFLICT, late
        assert "agentlipd down; agentlipd up --accept-loss outbox" in late.err
    finally:
        hub.stop()


def test_audit_log_that_is_deleted_in_its_first_session_is_missed(tmp_path):
    """Also after another act, which begins a new log; and its loss is accepted once."""
    hub = ServedHub(tmp_path / "w", "--no-limits")
    with hub.running():
        token = {"name": "first", "scopes": ["hub:read"]}
        hub.made(hub.http.post("/api/v1/tokens", token))
        lose(hub.workspace, "audit")
        assert [row["subject"] for row in findings(hub.workspace)] == ["audit"]
        hub.made(hub.http.post("/api/v1/tokens", {**token, "name": "second"}))
        problems = [(row["subject"], row["severity"]) for row in findings(hub.workspace)]
        assert problems == [("audit", "error")]
        assert hub.stop() == 0
    assert [row["subject"] for row in findings(hub.workspace)] == ["audit"]
    assert start_that_ends(hub.workspace).code == EXIT_CONFLICT
    lose(hub.workspace, "audit")
    for flags in (("--accept-loss", "audit"), ()):
        later = served_with(hub.workspace, *flags)
        assert later.stop() == 0
    assert {row["severity"] for row in findings(hub.workspace)} == {"info"}
