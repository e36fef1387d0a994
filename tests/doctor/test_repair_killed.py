"""After a repair that is killed anywhere, the next does the rest, and the data stays as it was."""

import os
import sqlite3
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from appliance.checks.settings import DoctorSettings
from appliance.checks.step import Step
from appliance.kernel.clock import SystemClock
from doctor.repair import DONE, Repair, outline
from doctor.run import examine, select
from doctor.saved_files import SAVED, folders
from tests.doctor.repairs import (
    apply,
    data_of,
    drop_search,
    leave_server_file,
    open_token,
)
from tests.doctor.workspace import NOW, WorkspaceFixture
from tests.support.forks import killed_at

_EVENTS = "SELECT event_id, ts, name, entity_type, entity_id, data_json FROM events"
POINTS_MAX = 1000
_FILE_EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.chmod", "os.rmdir")


@pytest.fixture
def workspace(tmp_path: Path) -> WorkspaceFixture:
    """A workspace whose repair has steps on files, modes and a store."""
    made = WorkspaceFixture(tmp_path)
    made.talk(3)
    made.index()
    made.execute(
        "INSERT INTO events (ts, name, entity_type, entity_id, data_json)"
        " VALUES (?, 'channel.created', 'channel', 'ch_1', '{}')",
        NOW,
    )
    open_token(made)
    leave_server_file(made)
    drop_search(made)
    return made


def steps_of(workspace: WorkspaceFixture) -> tuple[Step, ...]:
    with workspace.context() as context:
        return outline(context, examine(context, select([], False))).steps


def count_points(reached: Callable[[], None], root: str) -> None:
    """Calls `reached` before each change of a file below `root` and each statement of SQL."""

    connect = sqlite3.connect

    def traced(*values: Any, **named: Any) -> sqlite3.Connection:
        connection = connect(*values, **named)
        connection.set_trace_callback(lambda _statement: reached())
        return connection

    def on_event(event: str, values: tuple[Any, ...]) -> None:
        creates = event == "open" and (values[2] or 0) & os.O_CREAT
        if (creates or event in _FILE_EVENTS) and str(values[0]).startswith(root):
            reached()

    sqlite3.connect = traced
    sys.addaudithook(on_event)


def repair_in_steps(
    workspace: WorkspaceFixture, steps: tuple[Step, ...], reach: Callable[[], None]
) -> None:
    count_points(reach, str(workspace.data.dir))
    Repair(workspace.data, DoctorSettings(), SystemClock()).apply(steps)


def copy_of(workspace: WorkspaceFixture, folder: Path) -> WorkspaceFixture:
    """Copied by hand: `start` of a fixture would repair some of it."""
    made = object.__new__(WorkspaceFixture)
    made.__dict__.update(workspace.__dict__)
    made.data = type(workspace.data)(folder)
    for source in sorted(workspace.data.dir.rglob("*")):
        target = made.data.dir / source.relative_to(workspace.data.dir)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if source.is_dir():
            target.mkdir(mode=0o700, exist_ok=True)
        else:
            target.write_bytes(source.read_bytes())
            target.chmod(source.stat().st_mode & 0o777)
    return made


@pytest.mark.slow
def test_next_repair_does_what_one_that_was_killed_at_any_point_left(
    workspace: WorkspaceFixture, tmp_path: Path
) -> None:
    before, events = data_of(workspace), workspace.execute(_EVENTS)
    steps = steps_of(workspace)
    assert {step.action for step in steps} == {"set-mode", "remove-file", "rebuild"}
    checks = {"store.opens", *(step.check for step in steps)}
    interrupted = 0
    for point in range(1, POINTS_MAX, 3):
        copy = copy_of(workspace, tmp_path / str(point))
        if not killed_at(point, partial(repair_in_steps, copy, steps)):
            break
        assert copy.data.server_file.exists() or is_saved(copy), point
        left = steps_of(copy)
        interrupted += 0 < len(left) < len(steps)
        results = apply(copy, *left)
        assert {each.outcome for each in results} <= {DONE}, point
        assert [finding for check in checks for finding in copy.find(check)] == [], point
        assert unchanged(data_of(copy)) == unchanged(before), point
        assert copy.execute(_EVENTS) == events, point
    assert 60 < point < POINTS_MAX - 3
    assert interrupted > 5


def is_saved(workspace: WorkspaceFixture) -> bool:
    saved = [folder / SAVED / ".agentlip" / "server.json" for folder in folders(workspace.data)]
    return any(path.exists() for path in saved)


def unchanged(data: dict[str, str]) -> dict[str, str]:
    """The hashes without the table whose empty scopes the repair fills."""
    return {name: value for name, value in data.items() if name != "hub.events"}
