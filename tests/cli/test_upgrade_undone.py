"""An upgrade that is killed continues, and one that failed is undone with its backup."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.settings import BackupSettings
from appliance.kernel.log import Log
from appliance.process.daemon import hold_locks
from appliance.upgrade import apply as applying
from appliance.workspace.datadir import STORES, DataDir
from appliance.workspace.migration import load, newest
from tests.migrations.oldest import unpack_oldest
from tests.migrations.store_file import trace_statements
from tests.support.database_files import execute, schemas
from tests.support.forks import killed_at
from tests.support.other_versions import STEPS, OtherProgram, install_steps, next_step

pytestmark = pytest.mark.slow


def rows_of(datadir: DataDir) -> dict[str, list[tuple[Any, ...]]]:
    tables = {"hub": "messages", "auth": "tokens", "outbox": "outbox", "courier": "journal"}
    return {
        store: execute(datadir.database(store), f"SELECT * FROM {table} ORDER BY 1")
        for store, table in tables.items()
    }


def apply_in_steps(datadir: DataDir, reach: Callable[[], None]) -> None:
    trace_statements(reach)
    apply(datadir)


def apply(datadir: DataDir) -> str:
    with hold_locks(datadir) as clock:
        stores = tuple(store for store in STORES if datadir.database(store).exists())
        return applying.apply(datadir, BackupSettings(), stores, clock, Log(level="error"))


def test_killed_at_any_statement_a_migration_continues_and_its_backup_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_steps(monkeypatch, tmp_path / "migrations", STEPS)
    model = unpack_oldest(tmp_path / "model")
    before = schemas(model)
    apply(model)
    after, rows = schemas(model), rows_of(model)
    assert before != after
    statement, killed = 0, True
    while killed:
        statement += 12  # all of them take minutes; those of one store are in tests/migrations
        datadir = unpack_oldest(tmp_path / "ws")
        killed = killed_at(statement, partial(apply_in_steps, datadir))
        between = schemas(datadir)
        assert all(before[store] <= between[store] <= after[store] for store in before)
        backups = BackupDirectory(datadir, BackupSettings())
        (name,) = backups.names()
        saved = {s: facts.schema for s, facts in backups.read(name).stores.items() if facts.schema}
        assert saved == before
        apply(datadir)
        assert (schemas(datadir), rows_of(datadir)) == (after, rows)
        shutil.rmtree(datadir.workspace)
    assert statement > 60


def test_failed_upgrade_is_undone_by_the_command_that_its_error_names(tmp_path: Path) -> None:
    datadir = unpack_oldest(tmp_path / "ws")
    before, rows = schemas(datadir), rows_of(datadir)
    broken = OtherProgram(tmp_path / "newer", STEPS | next_step("inbox", "CREAT TABLE x_new (a);"))
    failed = broken.agentlip("migrate", "--apply", "--yes", cwd=datadir.workspace)
    assert failed.code == 3, failed
    assert schemas(datadir)["hub"] == newest(load("hub")) + 1  # migrated before the inbox failed
    command = failed.err.splitlines()[-1].removeprefix("Hint: ").partition(";")[0].split()
    assert command[:3] == ["agentlip", "backup", "restore"]
    restored = broken.agentlip(*command[1:], "--yes", cwd=datadir.workspace)
    assert restored.code == 0, restored
    assert schemas(datadir) == before
    assert rows_of(datadir)["hub"] == rows["hub"]
