"""`agentlipd`: a server that starts once, stops whole, and says what it found."""

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.workspace.datadir import DataDir, read_lock
from tests.support.commands import agentlip, agentlipd, succeed

pytestmark = pytest.mark.slow


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "work space"
    path.mkdir()
    yield path
    agentlipd("down", cwd=path)


def test_daemon_starts_once_reports_its_status_and_stops(workspace: Path) -> None:
    """Up makes the workspace; again it says so; down stops it; again it says so."""
    first = agentlipd("up", "--json", cwd=workspace)
    assert first.code == 0, first
    state = first.json
    assert state["status"] == "running"
    assert state["already_running"] is False
    second = agentlipd("up", "--json", cwd=workspace)
    assert second.json["already_running"] is True
    assert second.json["pid"] == state["pid"]
    text = agentlipd("up", cwd=workspace)
    assert state["url"] in text.out
    assert state["token_file"] in text.out
    assert text.out.count("agentlip ") >= 3
    down = agentlipd("down", "--json", cwd=workspace)
    assert down.json == {
        "status": "stopped", "was_running": True, "pid": state["pid"], "gracefully": True
    }  # fmt: skip
    datadir = DataDir(workspace)
    assert not read_lock(datadir).held
    assert not datadir.server_file.exists()
    assert not datadir.lock_file.exists()
    assert agentlipd("down", "--json", cwd=workspace).json["was_running"] is False
    assert agentlipd("status", cwd=workspace).code == 3


def test_restart_keeps_port_and_token_and_needs_valid_settings(workspace: Path) -> None:
    first = agentlipd("up", "--json", cwd=workspace).json
    token = DataDir(workspace).read_token()
    second = agentlipd("restart", "--json", cwd=workspace).json
    assert second["port"] == first["port"]
    assert second["pid"] != first["pid"]
    assert DataDir(workspace).read_token() == token
    (workspace / "agentlip.toml").write_text("[hub]\nno_such_setting = 1\n")
    refused = agentlipd("restart", cwd=workspace)
    assert refused.code != 0
    assert "no_such_setting" in refused.err
    assert "was not stopped" in refused.err
    assert agentlipd("status", "--json", cwd=workspace).json["pid"] == second["pid"]


def test_printed_commands_work_as_printed(workspace: Path, tmp_path: Path) -> None:
    printed = agentlipd("up", "--no-limits", cwd=workspace).out.partition("Try:\n")[2]
    lines = printed.splitlines()
    assert len(lines) >= 3
    for line in lines:
        words = subprocess.run(
            ["bash", "-c", f"printf '%s\\n' {line.strip()}"], capture_output=True, text=True,
            check=True, timeout=10,
        ).stdout.splitlines()  # fmt: skip
        succeed(*words[1:], cwd=tmp_path)


def test_start_that_fails_says_why(workspace: Path) -> None:
    (workspace / "agentlip.toml").write_text("[http]\nprot = 1\n", encoding="utf-8")
    done = agentlipd("up", cwd=workspace)
    assert done.code == 1
    assert "did not start" in done.err
    assert "prot" in done.err
    (workspace / "agentlip.toml").unlink()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = agentlipd("up", "--port", port, cwd=workspace)
    assert done.code == 1
    assert "in use" in done.err


def test_down_signals_no_other_process(workspace: Path) -> None:
    agentlip("init", cwd=workspace)
    datadir = DataDir(workspace)
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        datadir.server_file.write_text(json.dumps({"pid": stranger.pid, "port": 1}))
        datadir.lock_file.write_text(json.dumps({"pid": stranger.pid, "instance_id": "x"}))
        done = agentlipd("down", "--json", cwd=workspace)
        assert done.json["was_running"] is False
        assert stranger.poll() is None
        assert not datadir.server_file.exists()
    finally:
        stranger.kill()
        stranger.wait(10)
