"""`agentlipd reset` and `uninstall`: all data of a workspace go, its settings stay."""

import json
from pathlib import Path

import pytest

from appliance.identity.mode import SHORT_LIVED_VARIABLES
from appliance.workspace.datadir import DataDir
from tests.support.commands import agentlip, agentlipd

pytestmark = pytest.mark.slow


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "ws"
    path.mkdir()
    agentlip("init", cwd=path)
    (path / "agentlip.toml").write_text("# mine\n")
    (path / "notes.txt").write_text("mine")
    return path


def test_reset_without_yes_and_dry_run_change_nothing(workspace: Path) -> None:
    refused = agentlipd("reset", "--json", "--workspace", workspace, cwd=workspace.parent)
    assert refused.code == 1
    error = json.loads(refused.err)
    assert ".agentlip/db.sqlite3" in error["details"]["found"]["removed"]
    assert error["hint"] == f"agentlipd reset --json --workspace {workspace} --yes"
    dry = agentlipd("reset", "--dry-run", "--yes", "--json", cwd=workspace).json
    assert dry["dry_run"] is True
    assert dry["removed"] == error["details"]["found"]["removed"]
    assert dry["bytes"] > 0
    assert DataDir(workspace).database("hub").exists()


def test_reset_removes_only_our_files(workspace: Path) -> None:
    left = workspace / ".agentlip.removed-0123456789abcdef"  # by a reset that broke off
    left.mkdir()
    (left / "token").write_text("x")
    done = agentlipd("reset", "--yes", "--json", cwd=workspace)
    assert done.code == 0, done
    assert {".agentlip/token", f"{left.name}/token"} <= set(done.json["removed"])
    assert done.json["kept"] == ["agentlip.toml"]
    assert sorted(path.name for path in workspace.iterdir()) == ["agentlip.toml", "notes.txt"]
    assert agentlipd("reset", "--yes", cwd=workspace).code == 1, "there is no workspace now"
    assert agentlip("init", cwd=workspace).code == 0


def test_reset_does_not_follow_a_link(workspace: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    DataDir(workspace).dir.rename(elsewhere)
    DataDir(workspace).dir.symlink_to(elsewhere)
    refused = agentlipd("reset", "--yes", "--json", cwd=workspace)
    assert json.loads(refused.err)["code"] == "RESET_FAILED"
    assert (elsewhere / "db.sqlite3").exists()


def test_uninstall_removes_the_service_the_process_and_the_data(
    workspace: Path, tmp_path: Path
) -> None:
    env = {
        **dict.fromkeys(SHORT_LIVED_VARIABLES, ""),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    units = tmp_path / "config" / "systemd" / "user"
    for name in ("agentlip", "foreign"):
        agentlipd("install-service", "--name", name, cwd=workspace, **env)
    unit, foreign = units / "agentlip.service", units / "foreign.service"
    foreign.write_text("[Service]\nExecStart=/bin/true\n")
    assert agentlipd("up", cwd=workspace, **env).code == 0
    try:
        refused = agentlipd("uninstall", "--json", cwd=workspace, **env)
        assert refused.code == 1
        assert json.loads(refused.err)["details"]["services"] == [str(unit)]
        dry = agentlipd("uninstall", "--dry-run", "--name", "foreign", cwd=workspace, **env)
        assert str(foreign) not in dry.out, "somebody else wrote it"
        assert unit.exists()
        assert agentlipd("status", cwd=workspace).code == 0
        done = agentlipd("uninstall", "--yes", "--json", cwd=workspace, **env)
        assert done.code == 0, done
        assert done.json["services"] == [str(unit)]
        assert not unit.exists()
        assert foreign.exists()
        assert sorted(path.name for path in workspace.iterdir()) == ["agentlip.toml", "notes.txt"]
    finally:
        agentlipd("down", cwd=workspace)
