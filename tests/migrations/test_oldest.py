"""The oldest supported workspace opens with all of its data, now and with further steps."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from appliance.backup import restore
from appliance.backup.backup_directory import BackupDirectory, BackupWorkspace
from appliance.backup.create import create_backup
from appliance.backup.restore_job import RestoreJob
from appliance.kernel.log import Log
from appliance.workspace.datadir import STORES, DataDir, WriterLock
from appliance.workspace.migration import load, newest
from appliance.workspace.schema import create_workspace
from tests.doctor.used import FILLED
from tests.migrations.oldest import unpack_oldest
from tests.support.commands import agentlip, succeed
from tests.support.database_files import read, schemas
from tests.support.other_versions import STEPS, OtherProgram, install_steps
from tests.support.restored_workspace import CLOCK, SETTINGS, rows_of
from tests.support.servedhub import ServedHub

pytestmark = pytest.mark.slow
OF_AGE = ("outbox.waiting", "broker.waiting", "backup.", "jobs.")
"""Checks that rightly warn of a send, a delivery or a backup that is as old as the workspace."""
Tables = dict[str, list[Any]]


@pytest.fixture
def oldest(tmp_path: Path) -> DataDir:
    """The workspace with the relay switched on, whose store is not migrated otherwise."""
    datadir = unpack_oldest(tmp_path / "ws")
    settings = datadir.settings_file.read_text() if datadir.settings_file.exists() else ""
    assert "[roles]" not in settings
    datadir.settings_file.write_text(f"{settings}\n[roles]\nrelay = true\n")
    return datadir


def contents_before(datadir: DataDir, before: Tables) -> Tables:
    """The present rows in the tables that there were before a migration."""
    return {name: rows for name, rows in contents(datadir).items() if name in before}


def contents(datadir: DataDir) -> Tables:
    """The rows of each table with data of users, by the columns that it has in the archive."""
    rows: Tables = {}
    for store in STORES:
        with closing(sqlite3.connect(datadir.database(store))) as connection:
            listed = connection.execute("SELECT name FROM pragma_table_list WHERE type = 'table'")
            names = [name for (name,) in listed if not name.startswith(("x_", "sqlite_", "meta"))]
            for name in names:
                rows[f"{store}.{name}"] = connection.execute(f'SELECT * FROM "{name}"').fetchall()
    return rows


def assert_healthy(program: Any, datadir: DataDir) -> None:
    checked = program("doctor", "--all", "--json", cwd=datadir.workspace).json["checks"]
    findings = [finding for check in checked for finding in check["findings"]]
    assert [each for each in findings if not each["check"].startswith(OF_AGE)] == []


def find_older(datadir: DataDir) -> set[str]:
    """The stores that have a step since the archive."""
    return {store for store, number in schemas(datadir).items() if number < newest(load(store))}


def test_archive_has_rows_in_every_store(oldest: DataDir) -> None:
    rows = contents(oldest)
    tables = [f"{store}.{table}" for store, names in FILLED.items() for table in names]
    assert [name for name in (*tables, "relay.admins") if not rows[name]] == []
    assert {store for store in STORES if not oldest.database(store).exists()} == set()


def test_oldest_workspace_is_served_with_all_of_its_data(oldest: DataDir) -> None:
    before = contents(oldest)
    done = succeed("migrate", "--apply", "--yes", "--json", cwd=oldest.workspace)
    assert contents_before(oldest, before) == before
    assert bool(done.json["backup"]) == bool(done.json["migrated"])
    assert_healthy(agentlip, oldest)
    hub = ServedHub(oldest.workspace)
    with hub.running():
        events = [event["event_id"] for event in hub.events()]
        assert events[: len(before["hub.events"])] == [row[0] for row in before["hub.events"]]
        for path, key in (
            ("/api/v1/search?q=message", "messages"),
            ("/api/v1/webhooks", "webhooks"),
            ("/api/v1/tokens", "tokens"),
            ("/v1/outbox/sends?status=done", "sends"),
            ("/v1/inbox?mesh=lab&since=0&limit=100", "messages"),
            ("/broker/v1/meshes/lab/members", "members"),
            ("/v1/peek?stream=durable/a", "envelopes"),
        ):
            reply = hub.http.get(path)
            assert reply.status == 200, (path, reply)
            assert reply.body[key], path
        history = succeed("jobs", "history", "nightly", "--json", cwd=oldest.workspace).json
        assert history[-1]["state"] == "succeeded"  # a day later, the schedule starts a newer one
    admins = succeed("relay", "admins", "list", "--json", cwd=oldest.workspace).json
    assert [each["agent"] for each in admins] == ["ada"]
    tail = succeed("bus", "tail", "--jsonl", cwd=oldest.workspace).lines
    assert tail[-1]["payload"] == {"text": "x" * 10_000}


def test_store_of_a_role_that_is_off_is_migrated_by_the_command(tmp_path: Path) -> None:
    datadir = unpack_oldest(tmp_path / "ws")
    refused = agentlip("relay", "admins", "list", cwd=datadir.workspace)
    assert "agentlip migrate --apply" in refused.err
    succeed("migrate", "--apply", "--yes", cwd=datadir.workspace)
    admins = succeed("relay", "admins", "list", "--json", cwd=datadir.workspace).json
    assert [each["agent"] for each in admins] == ["ada"]


def test_oldest_workspace_gets_the_steps_of_a_later_program(
    oldest: DataDir, tmp_path: Path
) -> None:
    newer = OtherProgram(tmp_path / "newer", STEPS)
    rows = contents(oldest)
    present = {store: newest(load(store)) for store in schemas(oldest)}
    older = find_older(oldest)
    checked = newer.agentlip("doctor", "--all", "--json", cwd=oldest.workspace).json["checks"]
    problems = {finding["problem"] for check in checked for finding in check["findings"]}
    assert "old" in problems
    assert "failed" not in problems
    done = newer.agentlip("migrate", "--apply", "--yes", "--json", cwd=oldest.workspace).json
    steps = {name.partition("/")[0] for name in STEPS}
    assert set(done["migrated"]) == steps | older
    assert schemas(oldest) == {store: n + (store in steps) for store, n in present.items()}
    assert contents_before(oldest, rows) == rows
    assert_healthy(newer.agentlip, oldest)


def test_backup_of_an_older_schema_is_restored_and_migrated_by_a_start(
    oldest: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = BackupWorkspace(oldest, SETTINGS, BackupDirectory(oldest, SETTINGS), CLOCK)
    before = contents(oldest)["hub.messages"]
    with work.backups.only_writer():
        made = create_backup(work, reason="manual")
    older = find_older(oldest)
    install_steps(monkeypatch, tmp_path / "migrations", STEPS)
    done = restore.apply(RestoreJob(work, made, oldest), None)
    steps = {name.partition("/")[0] for name in STEPS}
    assert set(done.plan.migrations) == steps | older
    with WriterLock(oldest, "test"):
        create_workspace(
            oldest, clock=CLOCK, log=Log(sys.stderr.buffer, level="error"), locked=True
        )
    assert read(oldest.database("hub"), "SELECT count(*) FROM x_new")[0][0] > 0
    assert contents(oldest)["hub.messages"] == before
    epoch = rows_of(oldest, "SELECT value FROM meta WHERE key = 'epoch'", "auth")
    assert epoch == [(done.plan.epoch,)]
