"""`agentlip config show`: the settings with where each comes from, with and without a server."""

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


def test_origins_of_the_next_start(workspace: Path) -> None:
    given = {"AGENTLIP_HTTP__ALLOWED_HOSTS": '["hub.example"]', "AGENTLIP_LOG__LEVEL": "debug"}
    shown = agentlip("config", "show", "--changed", "--json", cwd=workspace, **given)
    assert (
        origins(shown).items()
        >= {
            "http.allowed_hosts": (["hub.example"], "environment"),
            "courier.streams": (None, "agentlip.toml"),
            "log.level": ("debug", "environment"),
            "log.access": ("all", "agentlip.toml"),
        }.items()
    )
    assert "default" not in {origin for _, origin in origins(shown).values()}
    done = agentlip("config", "show", "courier", "--origin", cwd=workspace)
    (line,) = [line for line in done.out.splitlines() if line.startswith("courier.streams")]
    assert line.split() == ["courier.streams", "(tuple", "of", "1)", "agentlip.toml"]


def test_origins_in_a_running_appliance(workspace: Path) -> None:
    with served(workspace, "--no-limits"):
        (workspace / "agentlip.toml").write_text('[log]\nlevel = "error"\n')
        shown = origins(agentlip("config", "show", "--json", cwd=workspace))
    assert shown["limits.global"] == (0, "command line")
    assert shown["log.level"] == ("warning", "agentlip.toml"), "the file has changed since"
    assert shown["mail.port"] == (587, "default")


def test_unknown_section_is_refused_with_the_known_ones(workspace: Path) -> None:
    done = agentlip("config", "show", "htp", cwd=workspace)
    assert (done.code, "http" in done.err) == (1, True)


def test_setting_alone(workspace: Path) -> None:
    done = agentlip("config", "show", "mail.port", cwd=workspace)
    assert done.out.splitlines()[1].split() == ["mail.port", "587"]
