"""`agentlip migrate` as a process, and a start that migrates.

A newer version is this one with a further migration of the hub and of the courier.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.settings import BackupSettings
from appliance.workspace.datadir import DataDir
from appliance.workspace.migration import load, newest
from tests.support.commands import agentlip, agentlipd
from tests.support.database_files import execute, overwrite, schemas
from tests.support.other_versions import OtherProgram, next_step
from tests.support.smalldisk import SmallDisk, small_disk
from tests.support.workspaces import Filled

pytestmark = pytest.mark.slow
NEWEST = newest(load("hub"))
STEPS = next_step("hub", "CREATE TABLE x_new (a INTEGER);") | next_step(
    "courier", "CREATE TABLE x_new (a INTEGER);"
)
HALF = next_step(
    "hub", "CREATE TABLE x_new (a INTEGER); UPDATE topics SET channel_id = 'nowhere';"
) | next_step("courier", "CREATE TABLE x_new (a INTEGER);")


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> OtherProgram:
    return OtherProgram(tmp_path_factory.mktemp("newer") / "program", STEPS)


@pytest.fixture
def workspace(tmp_path: Path) -> DataDir:
    return Filled(tmp_path / "ws").datadir


def backups(datadir: DataDir) -> BackupDirectory:
    return BackupDirectory(datadir, BackupSettings())


# -- the migration ------------------------------------------------------------------------------


def test_start_without_permission_to_migrate_names_the_command(newer, workspace):
    """The current program starts with the setting; a newer one only after the command."""
    before = schemas(workspace)
    workspace.settings_file.write_text("[store]\nmigrate_at_start = false\n")
    for _ in range(2):
        refused = newer.agentlipd("up", "--json", cwd=workspace.workspace)
        assert refused.code != 0
        assert "store.migrate_at_start is false" in refused.err
        assert "agentlip migrate --apply" in refused.err
        assert (schemas(workspace), backups(workspace).names()) == (before, [])
    assert newer.agentlip("migrate", "--apply", "--yes", cwd=workspace.workspace).code == 0
    assert newer.agentlipd("up", cwd=workspace.workspace).code == 0
    assert newer.agentlipd("down", cwd=workspace.workspace).code == 0
    assert schemas(workspace)["hub"] == NEWEST + 1


def test_apply_makes_a_backup_of_all_stores_first_and_migrates_all(newer, workspace):
    before = schemas(workspace)
    done = newer.agentlip("migrate", "--apply", "--yes", "--json", cwd=workspace.workspace).json
    assert set(done["migrated"]) == {"hub", "courier"}
    manifest = backups(workspace).read(done["backup"])
    assert manifest.reason == "before-migration"
    assert manifest.stores.pop("audit").schema == 0, "it has no migrations"
    assert {store: facts.schema for store, facts in manifest.stores.items()} == before
    assert schemas(workspace) == before | {"hub": NEWEST + 1, "courier": before["courier"] + 1}


def test_start_makes_one_backup_if_a_store_is_older_and_none_otherwise(newer, workspace):
    for _ in range(2):
        started = newer.agentlipd("up", cwd=workspace.workspace)
        assert started.code == 0, started
        assert newer.agentlipd("down", cwd=workspace.workspace).code == 0
        (name,) = backups(workspace).names()
    assert backups(workspace).read(name).reason == "before-migration"
    assert schemas(workspace)["hub"] == NEWEST + 1
    refused = agentlipd("up", "--json", cwd=workspace.workspace)
    assert refused.code == 1
    assert "newer program" in json.loads(refused.err)["error"]
    plan = agentlip("migrate", "--plan", cwd=workspace.workspace)
    assert plan.code == 5
    assert "hub: too new: " in plan.out


def test_failed_migration_changes_nothing_of_its_store_and_names_the_backup(
    workspace: DataDir, tmp_path: Path
) -> None:
    before, topics = schemas(workspace), execute(workspace.database("hub"), "SELECT * FROM topics")
    program = OtherProgram(tmp_path / "program", HALF)
    server = program.serve(workspace.workspace)
    assert server.returncode == 1
    sentence, hint = server.stderr.splitlines()[-2:]
    (name,) = backups(workspace).names()
    assert name in sentence
    assert f"agentlip backup restore {name}" in hint
    assert schemas(workspace)["hub"] == before["hub"]
    assert execute(workspace.database("hub"), "SELECT * FROM topics") == topics
    made = "SELECT * FROM sqlite_schema WHERE name = 'x_new'"
    assert not execute(workspace.database("hub"), made)


# -- what is refused ----------------------------------------------------------------------------


def test_nothing_is_migrated_while_a_store_is_damaged(newer, workspace):
    overwrite(workspace.database("courier"), 4096, b"\xff" * 8192)
    plan = newer.agentlip("migrate", "--plan", cwd=workspace.workspace)
    assert plan.code == 7, plan
    assert "courier: damaged: " in plan.out
    schema = "SELECT value FROM meta WHERE key = 'x_schema'"
    before = execute(workspace.database("hub"), schema)
    server = newer.serve(workspace.workspace)
    assert server.returncode == 1
    assert "so nothing was changed: courier can't be copied" in server.stderr
    assert "agentlipd up --migrate-without-backup" in server.stderr
    assert execute(workspace.database("hub"), schema) == before
    assert not backups(workspace).names()
    assert newer.agentlipd("up", "--migrate-without-backup", cwd=workspace.workspace).code == 0
    assert newer.agentlipd("down", cwd=workspace.workspace).code == 0
    assert execute(workspace.database("hub"), schema) == [(str(NEWEST + 1),)]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path, "ext4", 64) as mounted:
        yield mounted


@pytest.mark.root
def test_start_without_space_for_backup_needs_flag(newer, disk):
    datadir = Filled(disk.root / "ws").datadir
    before = schemas(datadir)
    server = newer.serve(datadir.workspace)
    assert server.returncode == 1
    sentence, hint = server.stderr.splitlines()[-2:]
    assert "so nothing was changed" in sentence
    assert "free space" in hint
    assert "agentlipd up --migrate-without-backup" in hint
    refused = newer.agentlip("migrate", "--apply", "--yes", "--json", cwd=datadir.workspace)
    error = json.loads(refused.err)
    assert error["code"] == "MIGRATION_NOT_SAVED"
    assert "agentlipd up --migrate-without-backup" in error["hint"]
    assert schemas(datadir) == before
    done = newer.agentlipd("up", "--migrate-without-backup", cwd=datadir.workspace)
    assert done.code == 3, "it runs, and is not ready on a disk that is nearly full"
    assert newer.agentlipd("down", cwd=datadir.workspace).code == 0
    assert schemas(datadir)["hub"] == NEWEST + 1
    assert not list(datadir.backups.iterdir())
