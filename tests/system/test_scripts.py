"""`ops/up` and `ops/down` on a fresh clone, and what they say where something is missing."""

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from tests.contract.test_walls import ROOT, tracked

REPEAT_SECONDS_MAX = 3.0


def clone(target: Path) -> Path:
    """The tree as a commit would hold it: no environment, nothing that git ignores."""
    for file in tracked():
        path = target / file.relative_to(ROOT)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, path)
    return target


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


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A fresh clone in which `ops/up` was called twice at once, as impatient people do."""
    tree = clone(tmp_path_factory.mktemp("clone"))
    command = [tree / "ops/up", "--workspace", tree / "first", "--port", str(free_port())]
    both = [
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    output = [each.communicate(timeout=300)[0] for each in both]
    # The slower one may find the other starting, which is a conflict and says so.
    codes = sorted(each.returncode for each in both)
    assert codes in ([0, 0], [0, 2]), output
    yield tree
    run(tree / "ops/down", "--workspace", tree / "first")


@pytest.mark.slow
def test_up_again_is_quick_and_says_what_it_found(tree):
    began = time.monotonic()
    again = run(tree / "ops/up", "--workspace", tree / "first")
    assert again.returncode == 0, again.stdout
    assert time.monotonic() - began < REPEAT_SECONDS_MAX
    assert "http://127.0.0.1:" in again.stdout
    assert ".agentlip/token" in again.stdout
    assert again.stdout.count("agentlip ") >= 3
    assert (tree / "first/.agentlip/token").read_text() not in again.stdout


@pytest.mark.slow
def test_port_and_token_outlive_down_and_up(tree):
    path = tree / "first"
    port = int((path / ".agentlip/port").read_text())
    token = (path / ".agentlip/token").read_text()
    assert health(port) == 200

    down = run(tree / "ops/down", "--workspace", path)
    assert down.returncode == 0, down.stdout
    with pytest.raises(OSError, match="refused"):
        health(port)
    assert run(tree / "ops/down", "--workspace", path).returncode in (0, 3)

    up = run(tree / "ops/up", "--workspace", path)
    assert up.returncode == 0, up.stdout
    assert health(port) == 200
    assert (path / ".agentlip/token").read_text() == token


@pytest.mark.slow
def test_a_taken_port_is_named(tree):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        result = run(tree / "ops/up", "--workspace", tree / "third", "--port", port)
    assert result.returncode != 0
    assert str(port) in result.stdout
    assert "Traceback" not in result.stdout


@pytest.mark.slow
def test_broken_environment_is_recreated(tree):
    (tree / ".venv/bin/python").unlink()
    result = run(tree / "ops/env")
    assert result.returncode == 0, result.stdout
    assert "anew" in result.stdout
    assert run(tree / ".venv/bin/agentlip", "--help").returncode == 0


def test_without_python_the_command_that_brings_it_is_named(tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    for folder in ["/bin", "/usr/bin"]:
        for tool in Path(folder).iterdir():
            if not tool.name.startswith(("python", "pypy")) and not (tools / tool.name).exists():
                (tools / tool.name).symlink_to(tool)
    tree = clone(tmp_path / "clone")
    result = run(tree / "ops/up", PATH=str(tools), NO_INSTALL="1")
    assert result.returncode == 1
    assert "python3-venv" in result.stdout or "Python 3.11" in result.stdout


@pytest.mark.slow
def test_without_a_package_index_the_reason_and_the_command_are_named(tmp_path):
    tree = clone(tmp_path / "clone")
    nothing = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    result = run(tree / "ops/up", **nothing)
    assert result.returncode == 1
    assert "No matching distribution" in result.stdout
    assert "ops/env appliance" in result.stdout
    assert not (tree / ".agentlip").exists()


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
