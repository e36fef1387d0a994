"""Hints for damaged stores: a restore only of a backup that was verified."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.backup import remedies
from appliance.kernel.clock import SystemClock
from appliance.workspace.manifest import remember
from tests.doctor.workspace import WorkspaceFixture
from tests.support.commands import ROOT
from tests.support.database_files import damage_table
from tests.support.real_backups import Backups
from tests.support.scheduled_backup import verified


@pytest.fixture
def workspace(tmp_path: Path) -> WorkspaceFixture:
    workspace = WorkspaceFixture(tmp_path / "a workspace")
    workspace.talk(50)
    return workspace


def back_up(workspace: WorkspaceFixture, result: str) -> str:
    """A backup of the whole workspace, verified with this result."""
    backups = Backups(workspace.data.workspace)
    made = backups.create()
    verified(backups.backups, made.name, result, SystemClock().now_ms())
    return made.name


def test_hint_of_a_damaged_store_restores_the_verified_backup_as_printed(
    workspace: WorkspaceFixture, tmp_path: Path
) -> None:
    name_of_backup = back_up(workspace, "good")
    workspace.talk(300)
    damage_table(workspace.data.database("hub"))
    first, *others = workspace.find("store.whole")
    assert f" backup restore {name_of_backup} " in first.hint
    assert not [finding for finding in others if finding.hint], "one hint is enough"
    run_without_appliance(first.hint, tmp_path)
    assert workspace.find_all() == []
    assert workspace.execute("SELECT count(*) FROM messages") == [(50,)]


def test_only_a_backup_that_was_verified_is_suggested(workspace: WorkspaceFixture) -> None:
    back_up(workspace, "bad")
    back_up(workspace, "inconclusive")
    assert remedies.verified_backup(workspace.data, "hub") is None
    name = back_up(workspace, "good")
    back_up(workspace, "bad")
    assert f"agentlip backup restore {name} " in remedies.restore_hint(workspace.data, "hub")
    workspace.execute("UPDATE meta SET value = 'b' WHERE key = 'db_id'")
    remember(workspace.data, ["hub"])
    assert remedies.verified_backup(workspace.data, "hub") is None


def run_without_appliance(command: str, folder: Path) -> None:
    """Runs a hint in a shell in which `agentlipd` does nothing."""
    scripts = folder / "bin"
    scripts.mkdir()
    ours = f'PYTHONPATH={ROOT} exec {sys.executable} -m appliance "$@"'
    for name, text in (("agentlipd", "exit 0"), ("agentlip", ours)):
        (scripts / name).write_text(f"#!/bin/sh\n{text}\n")
        (scripts / name).chmod(0o755)
    search = {"PATH": f"{scripts}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-ec", command], env=os.environ | search, check=True, timeout=60)
