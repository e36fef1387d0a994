"""Starts beside another hub, many starts at once, and a hub that runs but is not ready."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from appliance.workspace.datadir import DataDir, read_lock
from tests.support.commands import agentlip, agentlipd, command, environment
from tests.support.foreignhub import foreign_hub
from tests.support.hubprocess import served
from tests.support.until import until
from tests.support.workspaces import Filled

pytestmark = pytest.mark.slow

STARTS = 6


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    agentlipd("down", cwd=tmp_path)


# -- ready -----------------------------------------------------------------------------------


def test_status_of_unready_hub_fails_with_reason(tmp_path: Path) -> None:
    with served(tmp_path) as hub:
        healthy = agentlipd("status", "--json", cwd=tmp_path)
        assert (healthy.code, healthy.json["ready"]) == (0, True)
        hub.datadir.suspect_file("hub").touch()
        done = agentlipd("status", cwd=tmp_path)
        assert done.code == 3, done
        assert done.out.startswith("Status: running, not ready\nReason: store.suspect: ")
        assert "\nHint: agentlip doctor clear hub\n" in done.out
        machine = agentlipd("status", "--json", cwd=tmp_path)
        assert machine.code == 3
        assert (machine.json["status"], machine.json["ready"]) == ("running", False)
        assert machine.json["failing"] == ["store.suspect"]
        line = agentlip("status", cwd=tmp_path)
        assert line.code == 3
        assert line.out.startswith("running not-ready=store.suspect http://127.0.0.1:")


def test_start_without_writes_serves_reads_and_names_reason(workspace: Path) -> None:
    (workspace / "agentlip.toml").write_text("[store]\nfree_bytes_min = 1_000_000_000_000_000\n")
    for command_line, code in (("up", 3), ("up", 0), ("restart", 3)):
        done = agentlipd(command_line, cwd=workspace)
        assert done.code == code, done
        assert "It is not ready: host.disk: disk: writing is paused" in done.out
    assert agentlip("channel", "list", cwd=workspace).code == 0
    assert agentlip("channel", "create", "general", cwd=workspace).code == 3


def test_hub_whose_files_were_removed_refuses_writes_and_can_be_restored(workspace: Path) -> None:
    assert agentlipd("up", cwd=workspace).code == 0
    assert agentlip("channel", "create", "general", cwd=workspace).code == 0
    assert agentlip("backup", "create", cwd=workspace).code == 0
    datadir = DataDir(workspace)
    for path in datadir.dir.glob("db.sqlite3*"):
        path.unlink()
    datadir.lock_file.unlink()
    until(lambda: read_lock(datadir).held, 10, "the lock file is there again")
    where = ("--workspace", workspace)
    refused = agentlip("channel", "create", "lost", "--json", *where, cwd=workspace)
    assert (refused.code, "STORE_DETACHED" in refused.err) == (3, True), refused
    state = agentlipd("status", "--json", *where, cwd=workspace)
    assert (state.code, state.json["status"]) == (3, "running")
    assert "store.writer" in state.json["failing"]
    with urlopen(f"{state.json['url']}/api/v1/channels", timeout=10) as answer:
        assert b"general" in answer.read(), "reads go on"
    down = agentlipd("down", "--json", *where, cwd=workspace)
    assert (down.json["was_running"], down.json["pid"]) == (True, state.json["pid"])
    assert agentlip("backup", "restore", "--latest", "--yes", *where, cwd=workspace).code == 0
    restored = agentlip("channel", "list", "--json", *where, cwd=workspace)
    assert "general" in restored.out, restored


# -- a hub of another implementation ---------------------------------------------------------


def test_start_beside_a_hub_of_another_implementation(tmp_path: Path) -> None:
    """It doesn't hold our lock; only its answer at `/health` shows that it runs."""
    filled = Filled(tmp_path)
    with foreign_hub(filled.datadir) as server:
        before = filled.datadir.server_file.read_text()
        done = agentlipd("up", "--port", 0, cwd=tmp_path)
        assert done.code == 2, done
        assert "from another implementation runs" in done.err
        assert f"pid {server.pid}" in done.err
        assert filled.datadir.server_file.read_text() == before
        assert not filled.datadir.lock_file.exists()


# -- many at once ----------------------------------------------------------------------------


def test_many_starts_at_once_all_succeed_with_one_server(workspace: Path) -> None:
    starts = [
        subprocess.Popen(
            command("agentlipd", "up", "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=workspace, env=environment(),
        )
        for _ in range(STARTS)
    ]  # fmt: skip
    outs = [start.communicate(timeout=120) for start in starts]
    assert [start.returncode for start in starts] == [0] * STARTS, outs
    states = [json.loads(out) for out, _ in outs]
    assert len({state["pid"] for state in states}) == 1
    assert len({state["url"] for state in states}) == 1
    assert sorted(state["already_running"] for state in states) == [False] + [True] * (STARTS - 1)
    for state in states:
        assert state["token_file"] == str(DataDir(workspace).token_file)
