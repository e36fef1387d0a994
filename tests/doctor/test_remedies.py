"""Hints for damaged stores: a restore only from a snapshot that was opened and checked."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.create import create_backup
from appliance.backup.settings import BackupSettings
from appliance.kernel.clock import DAY_MS, SystemClock
from appliance.workspace import snapshot
from appliance.workspace.manifest import remember
from doctor import remedies, run
from doctor.check import Check, Finding
from doctor.context import Context
from tests.doctor.workspace import WorkspaceFixture
from tests.support.backup_commands import verified
from tests.support.commands import ROOT

RECOVER = "agentlip recover"


@pytest.fixture
def workspace(tmp_path: Path) -> WorkspaceFixture:
    workspace = WorkspaceFixture(tmp_path / "a workspace")
    workspace.talk(50)
    return workspace


def take(workspace: WorkspaceFixture, store: str = "hub", days_ago: float = 1) -> Path:
    """A snapshot as an upgrade takes it."""
    database = workspace.data.database(store)
    at_ms = SystemClock().now_ms() - int(days_ago * DAY_MS)
    with closing(sqlite3.connect(database)) as connection:
        return snapshot.take(connection, workspace.data.backups, database.name, 1, at_ms)


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


def test_without_a_snapshot_the_hint_is_to_recover(workspace: WorkspaceFixture) -> None:
    hint = remedies.restore_hint(workspace.data, "hub")
    assert hint == f"{RECOVER} hub --yes"


def test_store_with_a_recovery_command_is_recovered(workspace: WorkspaceFixture) -> None:
    take(workspace, "broker")
    hint = remedies.restore_hint(workspace.data, "broker")
    assert hint == "agentlipd down; agentlip recover broker --yes"


def test_newest_snapshot_is_chosen(workspace: WorkspaceFixture) -> None:
    take(workspace, days_ago=3)
    newest = take(workspace, days_ago=1)
    take(workspace, days_ago=2)
    take(workspace, store="auth", days_ago=0)
    assert remedies.good_snapshot(workspace.data, "hub") == newest


def make_foreign(path: Path) -> None:
    change(path, "UPDATE meta SET value = 'another' WHERE key = 'db_id'")


def make_newer(path: Path) -> None:
    change(path, "UPDATE meta SET value = '999' WHERE key = 'x_compat'")


def make_empty(path: Path) -> None:
    path.write_bytes(b"")


def make_another_database(path: Path) -> None:
    path.unlink()
    change(path, "CREATE TABLE bookmarks (url)")


@pytest.mark.parametrize(
    "spoil", [damage, damage_messages, make_foreign, make_newer, make_empty, make_another_database]
)
def test_snapshot_that_is_not_good_is_passed_over(workspace: WorkspaceFixture, spoil) -> None:
    good = take(workspace, days_ago=2)
    bad = take(workspace, days_ago=1)
    spoil(bad)
    assert remedies.good_snapshot(workspace.data, "hub") == good
    good.unlink()
    assert remedies.good_snapshot(workspace.data, "hub") is None
    assert remedies.restore_hint(workspace.data, "hub").startswith(RECOVER)


def test_partial_snapshot_is_passed_over(workspace: WorkspaceFixture) -> None:
    path = take(workspace)
    path.rename(path.with_name(path.name + ".partial"))
    assert remedies.good_snapshot(workspace.data, "hub") is None


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("store.opens", damage_store),
        ("store.whole", damage_page),
        ("store.integrity", damage_page),
    ],
)
def test_hint_of_a_damaged_store_restores_the_snapshot_as_printed(
    workspace: WorkspaceFixture, tmp_path: Path, name: str, spoil
) -> None:
    take(workspace)
    spoil(workspace)
    database = workspace.data.database("hub")
    torn = database.read_bytes()
    first, *others = workspace.find(name)
    assert first.hint
    assert not [finding for finding in others if finding.hint], "one hint is enough"
    run_without_appliance(first.hint, tmp_path)
    assert workspace.find_all() == []
    assert workspace.execute("SELECT count(*) FROM messages") == [(50,)]
    (aside,) = workspace.data.dir.glob("damaged-hub-*")
    assert (aside / database.name).read_bytes() == torn
    assert aside.stat().st_mode & 0o077 == 0


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


def test_only_a_backup_that_was_verified_is_suggested(workspace: WorkspaceFixture) -> None:
    take(workspace)
    back_up(workspace, "bad")
    back_up(workspace, "inconclusive")
    assert remedies.verified_backup(workspace.data, "hub") is None
    name = back_up(workspace, "good")
    back_up(workspace, "bad")
    assert f"agentlip backup restore {name} " in remedies.restore_hint(workspace.data, "hub")
    change(workspace.data.database("hub"), "UPDATE meta SET value = 'b' WHERE key = 'db_id'")
    remember(workspace.data, ["hub"])
    assert remedies.verified_backup(workspace.data, "hub") is None


def test_hint_restores_the_verified_backup_as_printed(
    workspace: WorkspaceFixture, tmp_path: Path
) -> None:
    name = back_up(workspace, "good")
    damage_store(workspace)
    (finding,) = workspace.find("store.opens")
    assert f" backup restore {name} " in finding.hint
    run_without_appliance(finding.hint, tmp_path)
    assert workspace.execute("SELECT count(*) FROM messages") == [(50,)]
    assert workspace.find("store.opens") == []


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
    take(workspace)
    damage_page(workspace)
    monkeypatch.setattr(Context, "disk_problem", "full")
    findings = workspace.find("store.whole")
    assert findings
    assert not [finding.hint for finding in findings if finding.hint]


def test_first_check_that_reads_damage_is_the_cause_and_has_the_remedy(
    workspace: WorkspaceFixture,
) -> None:
    """Large stores are not read through, so no other check may have found the damage."""
    path = take(workspace)
    damage_page(workspace)
    with workspace.context() as context:
        outcomes = run.examine(context, run.select(["events.rows", "hub.channels"], False))
    assert [outcome.check for outcome in outcomes] == ["events.rows", "hub.channels"]
    first, second = (finding for outcome in outcomes for finding in outcome.findings)
    assert (first.subject, first.problem, first.explained_by) == ("hub", "damaged-store", "")
    assert str(path) in first.hint
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
