"""A backup contains the whole workspace at one moment; a backup that fails leaves nothing."""

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from appliance.backup import create, cut, store_copy
from appliance.backup.errors import (
    CutNotPossible,
    RecipientRefused,
    StoreNotCopied,
)
from appliance.workspace.datadir import STORES, DataDir
from tests.support.database_files import execute, overwrite
from tests.support.real_backups import Backups
from tests.support.workspaces import Filled


def dump(datadir: DataDir, store: str) -> dict[str, list[object]]:
    with closing(sqlite3.connect(datadir.database(store))) as connection:
        return {
            table: sorted(connection.execute(f"SELECT * FROM {table}"), key=repr)
            for table in ("sqlite_schema", *store_copy.tables(connection))
        }


def files_below(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        path.relative_to(folder).as_posix(): (stat.S_IMODE(path.stat().st_mode), path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_backup_contains_every_store_secret_and_setting(
    backups: Backups, filled: Filled, tmp_path: Path
) -> None:
    manifest = backups.create()
    restored = backups.unpack(manifest.name, tmp_path / "restored")
    for store in STORES:
        assert dump(restored, store) == dump(filled.datadir, store), store
    before, after = files_below(filled.path), files_below(restored.workspace)
    small = {name for name in after if "sqlite3" not in name}
    assert small == {
        ".agentlip/token", ".agentlip/stores.json", ".agentlip/identity/keypair.json",
        "agentlip.toml",
    }  # fmt: skip
    assert {name: after[name] for name in small} == {name: before[name] for name in small}
    assert [path.name for path in restored.dir.iterdir() if path.suffix in (".wal", ".shm")] == []


def test_manifest_lists_authors_of_messages_and_not_too_many(
    backups: Backups, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(filled.datadir.database("hub"))) as connection, connection:
        connection.execute("DELETE FROM x_message_principals")
        rows = [("m1", "tok_b"), ("m2", "tok_a"), ("m3", "tok_b")]
        connection.executemany("INSERT INTO x_message_principals VALUES (?, ?)", rows)
    assert backups.create().principals == ("tok_a", "tok_b")
    monkeypatch.setattr(store_copy, "PRINCIPALS_MAX", 1)
    assert len(backups.create().principals) == 1


def test_files_of_a_backup_are_the_owners_only(backups: Backups) -> None:
    manifest = backups.create()
    path = backups.backups.path(manifest.name)
    for file in [path, *path.iterdir()]:
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file
    assert backups.remains == []


def test_cut_is_one_moment_of_all_stores(
    backups: Backups, filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write after the cut goes through at once, and is in none of the copies."""
    copy = store_copy.copy

    def copy_after_a_write(pinned: cut.PinnedStore, *more: object) -> object:
        with closing(sqlite3.connect(pinned.path, timeout=0)) as connection, connection:
            connection.execute("INSERT INTO meta VALUES ('later', 'x')")
        return copy(pinned, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(store_copy, "copy", copy_after_a_write)
    manifest = backups.create()
    restored = backups.unpack(manifest.name, tmp_path / "restored")
    for store in STORES:
        query = "SELECT 1 FROM meta WHERE key = 'later'"
        assert execute(restored.database(store), query) == [], store


def test_no_store_can_be_written_while_the_small_files_are_read(
    backups: Backups, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_all = create.small_files.read_all
    refused = []

    def read_and_try(datadir: DataDir) -> object:
        for store in STORES:
            with closing(sqlite3.connect(datadir.database(store), timeout=0)) as connection:
                with pytest.raises(sqlite3.OperationalError, match="locked"):
                    connection.execute("BEGIN IMMEDIATE")
                refused.append(store)
        return read_all(datadir)

    monkeypatch.setattr(create.small_files, "read_all", read_and_try)
    backups.create()
    assert refused == list(STORES)
    with closing(filled.connect()) as connection:
        connection.execute("BEGIN IMMEDIATE")


def test_store_that_stays_locked_is_named_and_no_other_stays_locked(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut, "PAUSE_SECONDS_MAX", 0.05)
    backups = Backups(filled.path)
    last = STORES[-1]
    with closing(sqlite3.connect(filled.datadir.database(last))) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(CutNotPossible, match=last):
            backups.create()
        with closing(sqlite3.connect(filled.datadir.database(STORES[0]), timeout=0)) as other:
            other.execute("BEGIN IMMEDIATE")
        assert backups.remains == []
        assert backups.backups.names() == []
    assert backups.create().name


@pytest.mark.parametrize("damage", ["missing", "suspect", "no database", "torn"])
def test_store_that_cannot_be_copied_is_named(backups: Backups, damage: str) -> None:
    database = backups.datadir.database("hub")
    execute(database, "PRAGMA wal_checkpoint(TRUNCATE)")
    if damage == "missing":
        from appliance.workspace import manifest as workspace_manifest

        workspace_manifest.remember(backups.datadir)
        database.unlink()
    elif damage == "suspect":
        backups.datadir.suspect_file("hub").touch()
    elif damage == "no database":
        database.write_bytes(b"x" * 10_000)
    else:
        overwrite(database, 4096 * 3, os.urandom(database.stat().st_size - 4096 * 3))
    with pytest.raises(StoreNotCopied, match="hub") as raised:
        backups.create()
    assert "agentlip doctor" in raised.value.hint
    assert backups.backups.names() == backups.remains == []


def test_wrong_recipients_are_refused_without_showing_a_secret(filled: Filled) -> None:
    secret = "AGE-SECRET-KEY-1G8XE"
    for text in ("age1foo", "", secret, "ssh-rsa x"):
        backups = Backups(filled.path, recipients=(text,))
        with pytest.raises(RecipientRefused, match=r"backup\.recipients") as raised:
            backups.create()
        assert secret not in raised.value.message
    assert backups.backups.names() == []
