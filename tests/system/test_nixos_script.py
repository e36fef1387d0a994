"""Runs the script of the NixOS test: its commands, against a process in place of a machine."""

import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import command, environment
from tests.support.nix import Flake
from tests.support.until import until

pytestmark = [pytest.mark.nix, pytest.mark.slow]

WORKSPACE = "/var/lib/agentlip"
ADDRESS = "http://127.0.0.1:7464"
SECONDS_MAX = 120


def toml(settings: dict[str, dict[str, Any]]) -> str:
    """Settings of one level, as a file; booleans, numbers and plain texts only."""
    lines = []
    for section, fields in settings.items():
        lines.append(f"[{section}]")
        for name, value in fields.items():
            text = str(value).lower() if isinstance(value, bool) else repr(value)
            lines.append(f"{name} = {text}")
    return "\n".join(lines) + "\n"


class Machine:
    """The functions of the test driver that the script uses, for one service."""

    def __init__(self, workspace: Path, evaluated: dict[str, Any]) -> None:
        self.workspace = workspace
        workspace.mkdir()
        self._settings = toml(evaluated["settings"])
        self._arguments = shlex.split(evaluated["service"]["serviceConfig"]["ExecStart"])[1:]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        (self.workspace / "agentlip.toml").write_text(self._settings, encoding="utf-8")
        arguments = [word.replace(WORKSPACE, str(self.workspace)) for word in self._arguments]
        self._process = subprocess.Popen(
            command("agentlipd", *arguments), cwd=self.workspace, env=environment()
        )

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGTERM)
            process.wait(SECONDS_MAX)

    def wait_for_unit(self, name: str) -> None:
        assert name == "agentlip.service"
        assert self._process is not None
        assert self._process.poll() is None

    def wait_until_succeeds(self, line: str) -> None:
        until(lambda: self._run(line).returncode == 0, SECONDS_MAX, line)

    def succeed(self, line: str) -> str:
        if line == "systemctl stop agentlip.service":
            self.stop()
        elif line == "systemctl start agentlip.service":
            self.start()
        else:
            done = self._run(line)
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            return done.stdout
        return ""

    def _run(self, line: str) -> "subprocess.CompletedProcess[str]":
        """Runs a line for the shell with the paths and the port of this process."""
        port = self.workspace / ".agentlip" / "port"
        here = f"http://127.0.0.1:{port.read_text().strip() if port.exists() else 1}"
        line = line.replace("runuser -u agentlip -- agentlip", shlex.join(command("agentlip")))
        line = line.replace(WORKSPACE, str(self.workspace)).replace(ADDRESS, here)
        return subprocess.run(
            ["sh", "-c", line],
            cwd=self.workspace,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )


@pytest.fixture(scope="module")
def flake(tmp_path_factory: pytest.TempPathFactory) -> Flake:
    return Flake(tmp_path_factory.mktemp("flake"))


@pytest.fixture
def machine(flake: Flake, tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path / "workspace", flake.machine(enable=True))
    yield machine
    machine.stop()


def test_script_passes_with_this_product(flake, machine):
    (script,) = set(flake.outputs("checks").values())  # the same for both systems
    exec(
        compile(script, "nix/test.nix", "exec"),
        {"machine": machine, "subtest": lambda _: nullcontext()},
    )
