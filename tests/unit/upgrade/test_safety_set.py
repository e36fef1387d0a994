"""The set before a migration: checked before anything is migrated, and gone if it is damaged."""

import io
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from appliance.backup import create
from appliance.backup.errors import CutNotPossible
from appliance.backup.manifest import SetManifest
from appliance.backup.sets import SetDirectory
from appliance.backup.settings import BackupSettings
from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.upgrade import safety_set
from appliance.upgrade.errors import MigrationNotSaved
from appliance.workspace import schema
from appliance.workspace.datadir import DataDir
from appliance.workspace.migration import load, newest
from tests.migrations.test_former import FORMER, workspace_of

SETTINGS = BackupSettings(free_bytes_min=0)


@pytest.fixture
def older(tmp_path: Path) -> DataDir:
    return workspace_of(FORMER[11], tmp_path / "ws")


def save(datadir: DataDir, *, backup: bool = True) -> str:
    log = Log(io.BytesIO())
    stores = ("hub", "auth")
    return safety_set.save(datadir, SETTINGS, stores, SystemClock(), log, backup=backup)


def test_set_has_the_older_schema_of_all_stores(older: DataDir) -> None:
    name = save(older)
    manifest = SetDirectory(older, SETTINGS).read(name)
    assert manifest.reason == "before-migration"
    assert 0 < manifest.stores["hub"].schema < newest(load("hub"))
    assert save(older, backup=False) == ""
    assert SetDirectory(older, SETTINGS).names() == [name]


def test_one_set_serves_all_attempts_while_the_data_is_unchanged(older: DataDir) -> None:
    """Also if an attempt has migrated a store: a set of that state would be no way back."""
    name = save(older)
    assert save(older) == name
    schema.migrate(
        older.database("auth"), "auth", clock=SystemClock(), backups=older.backups,
        log=Log(io.BytesIO()),
    )  # fmt: skip
    assert save(older) == name
    with closing(sqlite3.connect(older.database("hub"))) as connection, connection:
        connection.execute("INSERT INTO channels VALUES ('ch_new', 'new', NULL, 'now')")
    again = save(older)
    assert again != name
    stored = SetDirectory(older, SETTINGS).path(again)
    (stored / "db.sqlite3.zst").write_bytes(b"")
    assert save(older) != again


def test_damaged_set_is_removed_and_nothing_is_migrated(
    older: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = create.create_set

    def damaging(datadir: DataDir, sets: SetDirectory, *given: Any, **more: Any) -> SetManifest:
        manifest = really(datadir, sets, *given, **more)
        file = max(manifest.files, key=lambda each: each.stored_bytes)
        with (sets.path(manifest.name) / file.name).open("r+b") as opened:
            opened.seek(file.stored_bytes // 2)
            byte = opened.read(1)
            opened.seek(-1, 1)
            opened.write(bytes([byte[0] ^ 1]))
        return manifest

    monkeypatch.setattr(create, "create_set", damaging)
    with pytest.raises(MigrationNotSaved, match="nothing was changed"):
        save(older)
    assert SetDirectory(older, SETTINGS).names() == []


def test_hint_is_that_of_the_cause_and_names_the_way_without_a_set(
    older: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: Any, **__: Any) -> SetManifest:
        raise CutNotPossible

    monkeypatch.setattr(create, "create_set", locked)
    with pytest.raises(MigrationNotSaved) as refused:
        save(older)
    assert CutNotPossible.default_hint in refused.value.hint
    assert refused.value.hint.endswith("agentlipd up --migrate-without-backup")
