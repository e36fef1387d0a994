"""Checks beside a process that serves have a lower CPU priority, and that process keeps its own."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from appliance.kernel import subprocess_runner
from appliance.kernel.clock import SystemClock
from appliance.kernel.datadir import LockHolder, LockView
from doctor.context import Context
from doctor.priority import NICENESS, lower_beside
from doctor.settings import DoctorSettings
from doctor.verdict import VerdictQuery, Verdicts
from tests.doctor.workspace import WorkspaceFixture

FREE = LockView(exists=False, held=False, written=None)


def held_by(pid: int) -> LockView:
    return LockView(exists=True, held=True, written=LockHolder(pid=pid))


@pytest.mark.parametrize(
    ("lock", "niceness", "lowered"),
    [
        (held_by(os.getppid()), 0, True),
        (LockView(exists=True, held=True, written=None), 0, True),
        (held_by(os.getppid()), NICENESS + 1, False),
        (held_by(os.getpid()), 0, False),
        (FREE, 0, False),
    ],
)
def test_priority_is_lowered_only_beside_another_process(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lock: LockView,
    niceness: int,
    lowered: bool,
) -> None:
    workspace = WorkspaceFixture(tmp_path)
    calls: list[tuple[int, ...]] = []
    monkeypatch.setattr(Context, "lock", lambda self: lock)
    monkeypatch.setattr(os, "getpriority", lambda *_process: niceness)
    monkeypatch.setattr(os, "setpriority", lambda *values: calls.append(values))
    with workspace.context() as context:
        lower_beside(context)
    assert calls == ([(os.PRIO_PROCESS, 0, NICENESS)] if lowered else [])


def test_command_is_lowered_and_this_process_is_not(tmp_path: Path) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    wanted = min(own + 3, 19)
    # It reads its input first, which it gets after its priority.
    script = "import os, sys; sys.stdin.read(); print(os.getpriority(os.PRIO_PROCESS, 0))"
    done = subprocess_runner.run(
        [sys.executable, "-c", script],
        b"",
        os.environ,
        folder=tmp_path,
        seconds_max=30.0,
        kill_after_seconds=1.0,
        output_bytes_max=100,
        clock=SystemClock(),
        niceness=wanted,
    )
    assert int(done.output) == wanted
    assert os.getpriority(os.PRIO_PROCESS, 0) == own


def test_report_for_clients_is_made_at_a_lower_priority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = WorkspaceFixture(tmp_path)
    given: list[object] = []
    run = subprocess_runner.run

    def spy(*arguments: Any, **limits: Any) -> subprocess_runner.CommandResult:
        given.append(limits["niceness"])
        return run(*arguments, **limits)

    monkeypatch.setattr(subprocess_runner, "run", spy)
    Verdicts(workspace.data, DoctorSettings(), SystemClock()).verdict(VerdictQuery())
    assert given == [NICENESS]
