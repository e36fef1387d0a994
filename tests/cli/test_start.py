"""Starts beside another hub, many starts at once, and a hub that runs but is not ready."""

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from appliance.kernel.datadir import DataDir
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


def test_status_of_a_running_hub_that_is_not_ready_fails_with_the_reason(tmp_path: Path) -> None:
    with served(tmp_path) as hub:
        healthy = agentlipd("status", "--json", cwd=tmp_path)
        assert (healthy.code, healthy.json["ready"]) == (0, True)
        hub.datadir.lock_file.unlink()
        done = agentlipd("status", cwd=tmp_path)
        assert done.code == 3, done
        assert done.out.startswith("Status: running, not ready\nReason: host.lock: ")
        assert "\nHint: agentlipd restart\n" in done.out
        machine = agentlipd("status", "--json", cwd=tmp_path)
        assert machine.code == 3
        assert (machine.json["status"], machine.json["ready"]) == ("running", False)
        assert machine.json["failing"] == ["host.lock"]
        line = agentlip("status", cwd=tmp_path)
        assert line.code == 3
        assert line.out.startswith("running not-ready=host.lock http://127.0.0.1:")


# -- a hub of another implementation ---------------------------------------------------------


@pytest.mark.parametrize("flags", [["--foreground"], []])
def test_start_beside_a_hub_of_another_implementation(tmp_path: Path, flags: list[str]) -> None:
    """It doesn't hold our lock; only its answer at `/health` shows that it runs."""
    filled = Filled(tmp_path)
    with foreign_hub(filled.datadir) as server:
        before = filled.datadir.server_file.read_text()
        done = agentlipd("up", "--port", 0, *flags, cwd=tmp_path)
        if flags:
            assert done.code == 2, done
            assert f"a hub already runs in this workspace (pid {server.pid}" in done.err
        else:
            assert done.code == 0, done
            assert f"already running (pid {server.pid})" in done.out
        assert filled.datadir.server_file.read_text() == before
        assert not filled.datadir.lock_file.exists()


def test_down_leaves_a_hub_of_another_implementation_alone(tmp_path: Path) -> None:
    filled = Filled(tmp_path)
    with foreign_hub(filled.datadir) as server:
        done = agentlipd("down", cwd=tmp_path)
        assert done.code == 2, done
        assert f"pid {server.pid}" in done.err
        assert filled.datadir.server_file.exists()


def test_foreground_start_ignores_a_server_file_of_another_workspace(tmp_path: Path) -> None:
    """After a crash the port may belong to the hub of another workspace."""
    (tmp_path / "other").mkdir()
    other, ours = Filled(tmp_path / "other"), Filled(tmp_path / "ours")
    with foreign_hub(other.datadir), served(ours.path) as first:
        first.kill()
        ours.datadir.server_file.write_text(other.datadir.server_file.read_text())
        first.start()
        assert first.datadir.read_server().pid == first.pid


# -- many at once ----------------------------------------------------------------------------


@pytest.mark.parametrize("made", [True, False], ids=["workspace made", "no workspace yet"])
def test_many_starts_at_once_all_succeed_with_one_server(workspace: Path, made: bool) -> None:
    if made:
        agentlip("init", cwd=workspace)
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


# -- server.json -----------------------------------------------------------------------------


def test_removed_server_file_of_a_running_hub_is_written_again(tmp_path: Path) -> None:
    with served(tmp_path) as hub:
        before = hub.datadir.server_file.read_text()
        hub.datadir.server_file.unlink()
        until(hub.datadir.server_file.exists, 30, "server.json is written again")
        assert hub.datadir.server_file.read_text() == before
        assert agentlip("channel", "create", "found", cwd=tmp_path).code == 0
    assert not hub.datadir.server_file.exists()


# -- ports -----------------------------------------------------------------------------------


def test_up_says_when_the_port_of_last_time_is_in_use(workspace: Path) -> None:
    first = agentlipd("up", "--json", cwd=workspace).json["port"]
    agentlipd("down", cwd=workspace)
    with closing(socket.socket()) as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind(("127.0.0.1", first))
        stranger.listen()
        text = agentlipd("up", cwd=workspace).out
    now = agentlipd("status", "--json", cwd=workspace).json["port"]
    assert now != first
    assert f"  port {first} is in use: listening on port {now}, also after a restart\n" in text


def test_up_with_another_port_than_the_one_in_use_is_an_error(tmp_path: Path) -> None:
    with served(tmp_path) as hub:
        port = int(hub.url.rpartition(":")[2])
        other = port - 1 if port > 1024 else port + 1
        done = agentlipd("up", "--port", other, cwd=tmp_path)
        assert done.code == 2, done
        assert f"already runs at http://127.0.0.1:{port}, without --port {other}" in done.err
        assert f"Hint: agentlipd restart --port {other}" in done.err
        for same in ([], ["--port", port], ["--port", 0]):
            assert agentlipd("up", *same, cwd=tmp_path).code == 0
