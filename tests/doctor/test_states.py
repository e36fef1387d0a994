"""Repairs beside a hung appliance, and beside another repair: bounded time, and nothing twice."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doctor.breakages import UsedWorkspace
from tests.doctor.night import stop_all_threads
from tests.doctor.patience import PATIENCE
from tests.doctor.test_breakages import state_of
from tests.support.commands import command, environment
from tests.support.servedhub import ServedHub

pytestmark = pytest.mark.slow

SECONDS_MAX = 60  # the start of Python included, on a busy machine


def start_doctor(workspace: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command("agentlip", "doctor", "--workspace", str(workspace), *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(**PATIENCE),
    )


@pytest.fixture
def hub(used: UsedWorkspace) -> Iterator[ServedHub]:
    hub = ServedHub(used.data.workspace, "--no-limits")
    with hub.running(ending=signal.SIGKILL):
        yield hub


def test_repair_beside_a_hung_appliance_changes_no_store(
    hub: ServedHub, used: UsedWorkspace
) -> None:
    """The stores that the appliance has open stay as they are, and the refusal names its pid."""
    hub.send(hub.channel_with_topic("x")[1])
    used.data.token_file.chmod(0o644)
    used.execute("DROP TABLE x_fts")
    stop_all_threads(hub.pid)
    try:
        before = state_of(used)
        process = start_doctor(hub.workspace, "repair", "--yes", "--json")
        out, _ = process.communicate(timeout=SECONDS_MAX)
        steps = {each["step"]["check"]: each for each in json.loads(out)["results"]}
        assert steps["host.private"]["outcome"] == "done"
        assert steps["hub.search"]["outcome"] == "refused"
        assert str(hub.pid) in steps["hub.search"]["reason"]
        assert state_of(used) == before
    finally:
        os.kill(hub.pid, signal.SIGCONT)


def test_two_repairs_at_once_repair_once(used: UsedWorkspace) -> None:
    before = state_of(used)
    used.execute("DROP TABLE x_fts")
    used.data.token_file.chmod(0o644)
    both = [start_doctor(used.data.workspace, "repair", "--yes", "--json") for _ in range(2)]
    outputs = [process.communicate(timeout=SECONDS_MAX) for process in both]
    codes = sorted(process.returncode for process in both)
    assert codes in ([0, 0], [0, 3]), outputs
    if codes == [0, 3]:
        assert any(b"another repair is running" in err for _, err in outputs)
    assert used.find_all() == []
    assert state_of(used) == before
