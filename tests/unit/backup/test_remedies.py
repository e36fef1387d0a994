"""Hints for damaged stores: a restore only of a backup that was verified."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from appliance.backup import remedies
from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.create import create_backup
from appliance.backup.settings import BackupSettings
from appliance.checks.check import Check, Finding
from appliance.checks.context import Context
from appliance.kernel.clock import SystemClock
from appliance.workspace.manifest import remember
from doctor import run
from tests.doctor.workspace import WorkspaceFixture
from tests.support.backup_commands import verified
from tests.support.commands import ROOT

RECOVER = "agentlip recover"


@pytest.fixture
def workspace(tmp_path: Path) -> WorkspaceFixture:
    workspace = WorkspaceFixture(tmp_path / "a workspace")
    workspace.talk(50)
    return workspace


def back_up(workspace: WorkspaceFixture, result: str) -> str:
    """A backup of the whole workspace, verified with this result."""
    settings = BackupSettings(free_bytes_min=0)
    backups = BackupDirectory(workspace.data, settings)
    with backups.only_writer():
        made = create_backup(
            workspace.data, backups, settings, reason="schedule", clock=SystemClock()
        )
        verified(backups, made.name, result, SystemClock().now_ms())
    return made.name


def change(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql)


def damage(path: Path) -> None:
    """Overwrites every page but the first."""
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))


def damage_messages(path: Path) -> None:
    """Overwrites the first page of the messages; the database can still be opened."""
    with closing(sqlite3.connect(path)) as connection:
        ((root,),) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'messages'"
        )
    with path.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(b"\xff" * 4096)


def damage_page(workspace: WorkspaceFixture) -> None:
    workspace.talk(300)
    workspace.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    damage_messages(workspace.data.database("hub"))


def damage_store(workspace: WorkspaceFixture) -> None:
    workspace.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    damage(workspace.data.database("hub"))


def test_without_a_backup_the_hint_is_to_recover(workspace: WorkspaceFixture) -> None:
    hint = remedies.restore_hint(workspace.data, "hub")
    assert hint == f"{RECOVER} hub --yes"


def test_store_with_a_recovery_command_is_recovered(workspace: WorkspaceFixture) -> None:
    back_up(workspace, "good")
    hint = remedies.restore_hint(workspace.data, "broker")
    assert hint == "agentlipd down; agentlip recover broker --yes"


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("store.opens", damage_store),
        ("store.whole", damage_page),
        ("store.integrity", damage_page),
    ],
)
def test_hint_of_a_damaged_store_restores_the_verified_backup_as_printed(
    workspace: WorkspaceFixture, tmp_path: Path, name: str, spoil
) -> None:
    name_of_backup = back_up(workspace, "good")
    spoil(workspace)
    first, *others = workspace.find(name)
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
    change(workspace.data.database("hub"), "UPDATE meta SET value = 'b' WHERE key = 'db_id'")
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


def test_nothing_is_suggested_while_files_cannot_be_written(
    workspace: WorkspaceFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_up(workspace, "good")
    damage_page(workspace)
    monkeypatch.setattr(Context, "disk_problem", "full")
    findings = workspace.find("store.whole")
    assert findings
    assert not [finding.hint for finding in findings if finding.hint]


def test_first_check_that_reads_damage_is_the_cause_and_has_the_remedy(
    workspace: WorkspaceFixture,
) -> None:
    """Large stores are not read through, so no other check may have found the damage."""
    name = back_up(workspace, "good")
    damage_page(workspace)
    with workspace.context() as context:
        outcomes = run.examine(context, run.select(["events.rows", "events.rows-all"], False))
    assert [outcome.check for outcome in outcomes] == ["events.rows", "events.rows-all"]
    first, second = (finding for outcome in outcomes for finding in outcome.findings)
    assert (first.subject, first.problem, first.explained_by) == ("hub", "damaged-store", "")
    assert name in first.hint
    assert second.explained_by == f"{first.check}:damaged-store"
    assert second.hint == ""


def test_damage_that_a_check_reads_is_explained_by_the_check_that_looks_for_it(
    workspace: WorkspaceFixture,
) -> None:
    damage_page(workspace)
    with workspace.context() as context:
        outcomes = run.examine(context, run.select(["store.whole", "events.rows"], False))
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    assert {f"{each.check}:{each.problem}": each.explained_by for each in findings} == {
        "store.whole:damaged": "",
        "events.rows:damaged-store": "store.whole:damaged",
    }


def test_damage_of_the_full_text_index_suggests_no_restore(
    workspace: WorkspaceFixture,
) -> None:
    def find(context: Context) -> list[Finding]:
        context.open("hub")
        error = sqlite3.DatabaseError("database disk image is malformed")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT_VTAB
        raise error

    check = Check(name="a.b", inspects="nothing", find=find)
    with workspace.context() as context:
        (outcome,) = run.examine(context, [check])
    (finding,) = outcome.findings
    assert (finding.problem, finding.hint) == ("failed", "")
