"""`agentlip config show`: where each setting of a running appliance comes from."""

import json
from pathlib import Path

import pytest

from tests.support.commands import CommandOutput, agentlip
from tests.support.hubprocess import served


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    agentlip("init", cwd=tmp_path)
    (tmp_path / "agentlip.toml").write_text(
        '[log]\nlevel = "warning"\naccess = "all"\n[[courier.streams]]\npattern = "a/*"\n'
    )
    return tmp_path


def origins(done: CommandOutput) -> dict[str, tuple[object, str]]:
    assert done.code == 0, done
    return {row["setting"]: (row["value"], row["origin"]) for row in json.loads(done.out)}


def test_origins_in_a_running_appliance(workspace: Path) -> None:
    with served(workspace, "--no-limits"):
        (workspace / "agentlip.toml").write_text('[log]\nlevel = "error"\n')
        shown = origins(agentlip("config", "show", "--json", cwd=workspace))
    assert shown["limits.global"] == (0, "command line")
    assert shown["log.level"] == ("warning", "agentlip.toml"), "the file has changed since"
    assert shown["mail.port"] == (587, "default")
