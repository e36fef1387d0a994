"""The doctor beside a hung, copied or damaged appliance, and beside another doctor: a verdict in
bounded time, and nothing is changed."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from doctor import cli_repair, repair
from tests.doctor import repairs
from tests.doctor.breakages import UsedWorkspace, broken_page, no_header
from tests.doctor.night import stop_all_threads
from tests.doctor.patience import PATIENCE
from tests.doctor.test_breakages import state_of
from tests.support.commands import command, environment
from tests.support.servedhub import ServedHub

pytestmark = pytest.mark.slow

VERDICT_SECONDS_MAX = 60  # the start of Python included, on a busy machine


def start_doctor(workspace: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command("agentlip", "doctor", "--workspace", str(workspace), *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(**PATIENCE),
    )


def verdict(process: "subprocess.Popen[bytes]") -> tuple[int, dict[str, str]]:
    """The exit code, and the severity of each finding as `check:problem`."""
    out, err = process.communicate(timeout=VERDICT_SECONDS_MAX)
    assert process.returncode in (0, 1, 2), err.decode()
    value: Any = json.loads(out)
    return process.returncode, {
        f"{check['check']}:{each['problem']}": each["severity"]
        for check in value["checks"]
        for each in check["findings"]
    }


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
        out, _ = process.communicate(timeout=VERDICT_SECONDS_MAX)
        steps = {each["step"]["check"]: each for each in json.loads(out)["results"]}
        assert steps["host.private"]["outcome"] == "done"
        assert steps["hub.search"]["outcome"] == "refused"
        assert str(hub.pid) in steps["hub.search"]["reason"]
        assert state_of(used) == before
    finally:
        os.kill(hub.pid, signal.SIGCONT)


@pytest.mark.parametrize("store", ["hub", "auth", "broker"])
def test_corrupt_workspace_has_a_verdict(used: UsedWorkspace, store: str) -> None:
    no_header(store)(used)
    before = state_of(used)
    code, findings = verdict(start_doctor(used.data.workspace, "--all", "--json"))
    assert code == 2
    assert findings["store.opens:damaged"] == "error"
    process = start_doctor(used.data.workspace, "repair", "--all", "--yes", "--json")
    process.communicate(timeout=VERDICT_SECONDS_MAX)
    assert process.returncode == 2
    assert state_of(used) == before


def test_two_doctors_at_once_agree(used: UsedWorkspace) -> None:
    broken_page(used)
    before = state_of(used)
    doctors = [start_doctor(used.data.workspace, "--all", "--json") for _ in range(2)]
    first, second = (verdict(process) for process in doctors)
    assert first == second
    assert first[0] == 2
    assert "store.integrity:damaged" in first[1]
    assert state_of(used) == before


def test_two_repairs_at_once_repair_once(used: UsedWorkspace) -> None:
    before = state_of(used)
    used.execute("DROP TABLE x_fts")
    used.data.token_file.chmod(0o644)
    both = [start_doctor(used.data.workspace, "repair", "--yes", "--json") for _ in range(2)]
    outputs = [process.communicate(timeout=VERDICT_SECONDS_MAX) for process in both]
    codes = sorted(process.returncode for process in both)
    assert codes in ([0, 0], [0, 3]), outputs
    if codes == [0, 3]:
        assert any(b"another repair is running" in err for _, err in outputs)
    assert used.find_all() == []
    assert state_of(used) == before


def test_repair_looks_again_if_another_one_came_first(
    used: UsedWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    used.data.token_file.chmod(0o644)

    def late(*arguments: Any, **options: Any) -> repair.RepairOutline:
        used.data.token_file.chmod(0o600)
        return repair.outline(*arguments, **options)

    monkeypatch.setattr(cli_repair, "outline", late)
    done = repairs.repair(used, "--yes", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["applied"] is False
