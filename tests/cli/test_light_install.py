"""`pip install .` without extras, into an empty environment: the command line and the SDK."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import ROOT
from tests.support.workspaces import Filled

HEAVY = ("falcon", "gevent", "gunicorn", "peewee", "prometheus_client", "pyarrow")


@pytest.mark.slow
def test_plain_install_reads_a_workspace_and_brings_no_server(tmp_path: Path) -> None:
    filled = Filled(tmp_path / "workspace", messages=3)
    home = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, timeout=120)
    source = tmp_path / "source"
    # A copy, for building writes beside the sources.
    names = ["appliance", "doctor", "migrations", "pyproject.toml", "setup.py", "README.md"]
    source.mkdir()
    present = [str(ROOT / name) for name in names if (ROOT / name).exists()]
    subprocess.run(["cp", "-r", *present, str(source)], check=True, timeout=60)
    install = [str(home / "bin" / "pip"), "install", "-q", "--disable-pip-version-check", "."]
    done = subprocess.run(
        install, cwd=source, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            arguments, cwd=filled.path, capture_output=True, text=True, timeout=60, check=False,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        )  # fmt: skip

    agentlip = str(home / "bin" / "agentlip")
    tail = run(agentlip, "msg", "tail", "--topic-id", filled.topic_id, "--json")
    assert tail.returncode == 0, tail
    assert [row["content_raw"] for row in json.loads(tail.stdout)] == [
        "message 2", "message 1", "message 0"
    ]  # fmt: skip
    assert run(agentlip, "init", str(tmp_path / "new")).returncode == 0
    send = run(agentlip, "msg", "send", "--topic-id", "x", "--sender", "a", "--content", "b")
    assert send.returncode == 3, send
    assert run(agentlip, "listen").returncode == 3
    up = run(str(home / "bin" / "agentlipd"), "up")
    assert up.returncode == 1
    assert "agentlip[appliance]" in up.stderr
    doctor = run(agentlip, "doctor", "--help")
    assert doctor.returncode == 0, doctor
    python = str(home / "bin" / "python")
    sdk = run(
        python, "-c", "import agentlip.sdk.listen, agentlip.sdk.importer, agentlip.sdk.reader"
    )
    assert sdk.returncode == 0, sdk
    export = run(agentlip, "export", "segments", "--format", "jsonl")
    assert export.returncode == 3, export  # this workspace was never served
    assert "has no epoch yet" in export.stderr
    assert run(agentlip, "export", "segments").returncode == 18
    program = f"from importlib.util import find_spec; print([n for n in {HEAVY} if find_spec(n)])"
    assert run(python, "-c", program).stdout.strip() == "[]"
