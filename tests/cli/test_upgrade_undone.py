"""An upgrade that is killed continues, and one that is regretted is undone with its backup."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.settings import BackupSettings
from appliance.kernel.log import Log
from appliance.process.daemon import hold_locks
from appliance.upgrade import apply as applying
from appliance.upgrade.plan import plan
from appliance.upgrade.sections import UpgradeSections
from appliance.workspace.datadir import STORES, DataDir
from appliance.workspace.migration import load, newest
from tests.migrations.store_file import trace_statements
from tests.migrations.test_former import FORMER, workspace_of
from tests.support.commands import agentlip
from tests.support.forks import killed_at
from tests.support.hubprocess import HubProcess, served
from tests.support.programs import OtherProgram, next_step

pytestmark = pytest.mark.slow
BEFORE = FORMER[11]  # with steps of five stores ahead of it


def rows_of(datadir: DataDir) -> dict[str, list[tuple[Any, ...]]]:
    tables = {"hub": "messages", "auth": "tokens", "outbox": "outbox", "courier": "journal"}
    rows = {}
    for store, table in tables.items():
        with closing(sqlite3.connect(datadir.database(store))) as connection:
            rows[store] = connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
    return rows


def schemas(datadir: DataDir) -> dict[str, int]:
    numbers = {}
    for store in filter(lambda name: datadir.database(name).exists(), STORES):
        with closing(sqlite3.connect(datadir.database(store))) as connection:
            (text,) = connection.execute("SELECT value FROM meta WHERE key = 'x_schema'").fetchone()
            numbers[store] = int(text)
    return numbers


def apply_in_steps(datadir: DataDir, reach: Callable[[], None]) -> None:
    trace_statements(reach)
    apply(datadir)


def apply(datadir: DataDir) -> applying.AppliedMigration:
    with hold_locks(datadir) as clock:
        planned = plan(datadir, UpgradeSections(), locked=True)
        return applying.apply(datadir, planned, BackupSettings(), clock, Log(level="error"))


def test_killed_at_any_statement_a_migration_continues_and_its_backup_is_whole(
    tmp_path: Path,
) -> None:
    model = workspace_of(BEFORE, tmp_path / "model")
    before = schemas(model)
    apply(model)
    after, rows = schemas(model), rows_of(model)
    assert before != after
    statement, killed = 0, True
    while killed:
        statement += 4  # all of them take minutes; those of one store are in tests/migrations
        datadir = workspace_of(BEFORE, tmp_path / "ws")
        killed = killed_at(statement, partial(apply_in_steps, datadir))
        between = schemas(datadir)
        assert all(before[store] <= between[store] <= after[store] for store in before)
        backups = BackupDirectory(datadir, BackupSettings())
        (name,) = backups.names()
        assert {s: facts.schema for s, facts in backups.read(name).stores.items()} == before
        apply(datadir)
        assert (schemas(datadir), rows_of(datadir)) == (after, rows)
        shutil.rmtree(datadir.workspace)
    assert statement > 60


def test_regretted_upgrade_is_undone_by_its_backup_with_either_program(tmp_path: Path) -> None:
    newer = OtherProgram(
        tmp_path / "newer",
        next_step("hub", "UPDATE messages SET content_raw = 'spoiled'; CREATE TABLE x_new (a);")
        | next_step("outbox", "CREATE TABLE x_new (a);"),
    )
    with served(tmp_path / "ws") as hub:
        channel = hub.request("POST", "/api/v1/channels", {"name": "general"})["channel"]
        body = {"channel_id": channel["id"], "title": "first"}
        topic = hub.request("POST", "/api/v1/topics", body)["topic"]["id"]
        body = {"topic_id": topic, "sender": "me", "content_raw": "hello"}
        hub.request("POST", "/api/v1/messages", body)
        events = hub.events()
    datadir = hub.datadir
    before = schemas(datadir)
    for program in (agentlip, newer.agentlip):
        done = newer.agentlip("migrate", "--apply", "--yes", "--json", cwd=datadir.workspace)
        assert done.code == 0, done
        assert schemas(datadir) != before
        name = done.json["backup"]
        restored = program("backup", "restore", name, "--yes", "--json", cwd=datadir.workspace)
        assert restored.code == 0, restored
        assert schemas(datadir) == before
        older = HubProcess(datadir.workspace)
        older.start()
        try:
            assert older.events()[: len(events)] == events
            body = {"topic_id": topic, "sender": "me", "content_raw": "after the restore"}
            older.request("POST", "/api/v1/messages", body)
            page = older.request("GET", f"/api/v1/messages?topic_id={topic}")["messages"]
        finally:
            assert older.stop() == 0
        assert "hello" in [message["content_raw"] for message in page]
        assert "spoiled" not in [message["content_raw"] for message in page]
        checked = agentlip("doctor", "--all", cwd=datadir.workspace)
        assert checked.code == 0, checked


def test_failed_upgrade_is_undone_by_the_command_that_its_error_names(tmp_path: Path) -> None:
    datadir = workspace_of(BEFORE, tmp_path / "ws")
    before, rows = schemas(datadir), rows_of(datadir)
    broken = OtherProgram(tmp_path / "newer", next_step("inbox", "CREAT TABLE x_new (a);"))
    failed = broken.agentlip("migrate", "--apply", "--yes", cwd=datadir.workspace)
    assert failed.code == 3, failed
    assert schemas(datadir)["hub"] == newest(load("hub"))  # migrated before the inbox failed
    command = failed.err.splitlines()[-1].removeprefix("Hint: ").partition(";")[0].split()
    assert command[:3] == ["agentlip", "backup", "restore"]
    restored = broken.agentlip(*command[1:], "--yes", cwd=datadir.workspace)
    assert restored.code == 0, restored
    assert schemas(datadir) == before
    assert rows_of(datadir)["hub"] == rows["hub"]
