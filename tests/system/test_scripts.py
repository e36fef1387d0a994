"""`ops/up` and `ops/down` on a fresh clone, and what they say where something is missing."""

import os
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.contract.test_walls import ROOT
from tests.support.installs import tree_in


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **environment},
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
        check=False,
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def health(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as reply:
        return int(reply.status)


def test_up_with_spark_makes_the_environment_of_the_commands_that_it_prints(tmp_path):
    tree = tree_in(tmp_path / "clone")
    stub = tree / "ops/env"
    stub.write_text(
        """#!/bin/sh
venv=${0%/ops/env}/.venv; [ "$1" = appliance ] || venv=$venv-$1
mkdir -p "$venv/bin"
echo '#!/bin/sh' | tee "$venv/bin/agentlip" >"$venv/bin/agentlipd"
chmod +x "$venv"/bin/*
"""
    )
    stub.chmod(0o755)
    path = "/usr/bin:/bin"
    done = run(tree / "ops/up", "--with-spark", "--workspace", tmp_path / "hub", PATH=path)
    assert done.returncode == 0, done.stdout
    shell = done.stdout[done.stdout.index("export ") :].splitlines()[0] + "; command -v agentlip"
    assert run("sh", "-c", shell, PATH=path).stdout.strip() == str(tree / ".venv/bin/agentlip")
    assert (tree / ".venv/bin/agentlip").exists()
    assert str(tree / ".venv-spark/bin/python") in (tmp_path / "hub/agentlip.toml").read_text()


@pytest.mark.slow
def test_up_twice_at_once_and_port_and_token_outlive_down_and_up(tmp_path):
    """On a fresh clone, in which `ops/up` is called twice at once, as impatient people do."""
    tree = tree_in(tmp_path / "clone")
    path = tree / "first"
    command = [tree / "ops/up", "--workspace", path, "--port", str(free_port())]
    both = [
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    output = [each.communicate(timeout=300)[0] for each in both]
    # The slower one may find the other starting, which is a conflict and says so.
    assert sorted(each.returncode for each in both) in ([0, 0], [0, 2]), output
    port = int((path / ".agentlip/port").read_text())
    token = (path / ".agentlip/token").read_text()
    assert health(port) == 200

    down = run(tree / "ops/down", "--workspace", path)
    assert down.returncode == 0, down.stdout
    with pytest.raises(OSError, match="refused"):
        health(port)

    up = run(tree / "ops/up", "--workspace", path)
    assert up.returncode == 0, up.stdout
    assert health(port) == 200
    assert (path / ".agentlip/token").read_text() == token
    assert ".agentlip/token" in up.stdout
    assert token not in up.stdout
    run(tree / "ops/down", "--workspace", path)


def test_without_python_the_command_that_brings_it_is_named(tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    for folder in ["/bin", "/usr/bin"]:
        for tool in Path(folder).iterdir():
            if not tool.name.startswith(("python", "pypy")) and not (tools / tool.name).exists():
                (tools / tool.name).symlink_to(tool)
    tree = tree_in(tmp_path / "clone")
    result = run(tree / "ops/up", PATH=str(tools), NO_INSTALL="1")
    assert result.returncode == 1
    assert "python3-venv" in result.stdout or "Python 3.11" in result.stdout


def test_an_unwritable_workspace_is_named(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    result = run(ROOT / "ops/up", "--workspace", blocked / "below")
    assert result.returncode == 1
    assert "--workspace" in result.stdout


def test_down_succeeds_where_nothing_ever_ran(tmp_path):
    result = run(ROOT / "ops/down", "--workspace", tmp_path)
    assert result.returncode == 0
    assert "no appliance" in result.stdout
