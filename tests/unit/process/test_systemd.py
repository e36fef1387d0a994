"""The units that `agentlipd install-service` and ops/systemd hand to systemd."""

import shutil
import subprocess
from pathlib import Path

import pytest

from appliance.process.systemd import HOMES, Unit, render
from tests.support.commands import ROOT

WORKSPACE = Path("/srv/agent lip")
REFERENCE = (ROOT / "ops/systemd/agentlip.service").read_text()


def directives(text: str) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for line in text.splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            values.setdefault(name, []).append(value)
    return values


def units() -> dict[str, str]:
    return {
        "reference": REFERENCE,
        "machine": Unit("agentlip", WORKSPACE, [], system=True, user="bob").text(),
    }


def test_file_in_ops_is_the_unit_of_the_machine():
    workspace, program = Path("/var/lib/agentlip"), "/opt/agentlip/.venv/bin/agentlipd"
    made = render(
        workspace,
        [program, "up", "--foreground", "--workspace", str(workspace)],
        owner="User=agentlip\nGroup=agentlip\nStateDirectory=agentlip\nStateDirectoryMode=0750\n",
        environment="",
        system=True,
        used=[Path(program)],
    )
    assert REFERENCE[REFERENCE.index("[Unit]") :] == made


@pytest.mark.parametrize(
    ("workspace", "arguments", "home", "temporary"),
    [
        (f"{HOMES[0]}/bob/project", [], "read-only", "yes"),
        ("/tmp/project", [], None, "no"),
        ("/srv/agentlip", ["--config", f"{HOMES[1]}/agentlip.toml"], "read-only", "yes"),
    ],
)
def test_unit_of_the_machine_does_not_hide_what_it_needs(workspace, arguments, home, temporary):
    values = directives(Unit("a", Path(workspace), arguments, system=True, user="bob").text())
    assert values["ReadWritePaths"] == [workspace]
    assert values["PrivateTmp"] == [temporary]
    if home is not None:
        assert values["ProtectHome"] == [home]


@pytest.mark.parametrize("name", ["reference", "machine"])
def test_systemd_rates_the_unit_of_the_machine_as_confined(name, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    file = tmp_path / "agentlip.service"
    file.write_text(units()[name])
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--threshold=25", str(file)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Unknown" not in done.stderr, "a directive that systemd does not know"
