"""The backup before a migration: checked before anything is migrated, and gone if it is damaged."""

import io
from pathlib import Path
from typing import Any

import pytest

from appliance.backup import create
from appliance.backup.backup_directory import BackupDirectory, BackupWorkspace
from appliance.backup.manifest import BackupManifest
from appliance.backup.settings import BackupSettings
from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.upgrade import safety_backup
from appliance.upgrade.plan import pending_stores
from appliance.upgrade.safety_backup import MigrationNotSaved
from appliance.workspace import schema
from appliance.workspace.datadir import DataDir
from appliance.workspace.migration import load, newest
from tests.migrations.oldest import unpack_oldest
from tests.migrations.test_adoption import foreign, random_ids
from tests.support.database_files import execute
from tests.support.other_versions import STEPS, install_steps

SETTINGS = BackupSettings(free_bytes_min=0)


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    install_steps(monkeypatch, tmp_path / "migrations", STEPS)
    return unpack_oldest(tmp_path / "ws")


def save(datadir: DataDir) -> str:
    pending = pending_stores(datadir, ("hub", "auth"))
    return safety_backup.save(datadir, SETTINGS, pending, SystemClock(), Log(io.BytesIO()))


def test_backup_has_the_older_schema_of_all_stores(older: DataDir) -> None:
    name = save(older)
    manifest = BackupDirectory(older, SETTINGS).read(name)
    assert manifest.reason == "before-migration"
    assert 0 < manifest.stores["hub"].schema < newest(load("hub"))
    assert BackupDirectory(older, SETTINGS).names() == [name]


def test_one_backup_serves_all_attempts_while_the_data_is_unchanged(older: DataDir) -> None:
    """Also if an attempt has migrated a store: a backup of that state would be no way back."""
    name = save(older)
    assert save(older) == name
    schema.migrate(
        older.database("auth"), "auth", clock=SystemClock(),
        log=Log(io.BytesIO()),
    )  # fmt: skip
    assert save(older) == name
    execute(older.database("hub"), "INSERT INTO channels VALUES ('ch_new', 'new', NULL, 'now')")
    again = save(older)
    assert again != name
    stored = BackupDirectory(older, SETTINGS).path(again)
    (stored / "db.sqlite3.zst").write_bytes(b"")
    assert save(older) != again


def test_workspace_of_another_program_is_in_a_backup_before_it_is_adopted(tmp_path: Path) -> None:
    workspace = DataDir(tmp_path)
    workspace.dir.mkdir()
    foreign(workspace.dir, random_ids(3)).database.rename(workspace.database("hub"))
    manifest = BackupDirectory(workspace, SETTINGS).read(save(workspace))
    assert manifest.stores["hub"].rows["messages"] == 3
    assert (manifest.stores["hub"].schema, manifest.db_id) == (0, "theirs")


def test_damaged_backup_is_removed_and_nothing_is_migrated(
    older: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = create.create_backup

    def damaging(work: BackupWorkspace, **more: Any) -> BackupManifest:
        manifest = really(work, **more)
        file = max(manifest.files, key=lambda each: each.stored_bytes)
        with (work.backups.path(manifest.name) / file.name).open("r+b") as opened:
            opened.seek(file.stored_bytes // 2)
            byte = opened.read(1)
            opened.seek(-1, 1)
            opened.write(bytes([byte[0] ^ 1]))
        return manifest

    monkeypatch.setattr(create, "create_backup", damaging)
    with pytest.raises(MigrationNotSaved, match="nothing was changed"):
        save(older)
    assert BackupDirectory(older, SETTINGS).names() == []
