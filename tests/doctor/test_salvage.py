"""Salvage saves what can be read of a damaged store in a new file, and rebuilds the hub's rows."""

import json
import random
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from appliance.kernel.sqlite_pages import TABLE_LEAF, PageFile
from tests.doctor.conversation import content, converse, facts
from tests.doctor.repairs import doctor
from tests.doctor.workspace import WorkspaceFixture
from tests.support.commands import environment

PAGE_BYTES = 4096


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace that tests copy."""
    folder = tmp_path_factory.mktemp("original")
    converse(WorkspaceFixture(folder))
    return folder


@pytest.fixture
def workspace(original: Path, tmp_path: Path) -> WorkspaceFixture:
    shutil.copytree(original, tmp_path / "ws")
    return WorkspaceFixture(tmp_path / "ws")


def salvage(workspace: WorkspaceFixture, into: Path, store: str = "hub") -> dict[str, Any]:
    done = doctor(workspace, "repair", "salvage", store, "--into", str(into), "--json")
    assert done.exit_code in (0, 1), done.output
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == (0 if report["saved_all"] else 1)
    return report


def pages_of(database: Path, table: str) -> list[int]:
    """The leaves of a table."""
    stored = database.read_bytes()
    file = PageFile(lambda at, length: stored[at : at + length], len(stored))
    with closing(sqlite3.connect(database)) as connection:
        query = "SELECT rootpage FROM sqlite_schema WHERE name = ?"
        (root,) = connection.execute(query, (table,)).fetchone()
    pages, whole = file.tree(root)
    assert whole
    return [page for page in pages if file.kind(page) == TABLE_LEAF]


def overwrite(database: Path, page: int, with_bytes: bytes) -> None:
    with database.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(with_bytes)


def fold(workspace: WorkspaceFixture) -> Path:
    workspace.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return workspace.data.database("hub")


@pytest.mark.parametrize("store", ["hub", "auth", "broker", "courier", "inbox", "outbox"])
def test_undamaged_store_is_saved_completely(
    workspace: WorkspaceFixture, tmp_path: Path, store: str
) -> None:
    database = workspace.data.database(store)
    before = content(database)
    report = salvage(workspace, tmp_path / "new", store)
    assert content(tmp_path / "new") == before
    assert facts(tmp_path / "new") == facts(database) | {
        key: value for key, value in facts(tmp_path / "new").items() if key.startswith("x_id_")
    }
    assert report["saved_all"]
    assert not any(table["lost"] or table["rebuilt"] for table in report["tables"].values())
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob("*salvage*")) + list(tmp_path.glob("new-*"))


def test_commits_in_the_write_ahead_log_are_saved(
    workspace: WorkspaceFixture, tmp_path: Path
) -> None:
    copy = WorkspaceFixture(tmp_path / "copy")
    with closing(sqlite3.connect(workspace.data.database("hub"))) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        with connection:
            connection.execute("UPDATE topics SET title = title || ' of today'")
        for suffix in ("", "-wal"):
            shutil.copy(f"{workspace.data.database('hub')}{suffix}",
                        f"{copy.data.database('hub')}{suffix}")  # fmt: skip
    salvage(copy, tmp_path / "new")
    titles = {row[3] for row in content(tmp_path / "new")["topics"]}
    assert titles
    assert all(title.endswith(" of today") for title in titles)


@pytest.mark.parametrize("seed", range(6))
def test_garbage_pages_lose_only_rows_that_are_named(
    workspace: WorkspaceFixture, tmp_path: Path, seed: int
) -> None:
    """The rows of the new file are a subset of the rows before, and the report counts the rest."""
    database, dice = fold(workspace), random.Random(seed)
    before = content(database)
    for page in dice.sample(range(2, database.stat().st_size // PAGE_BYTES + 1), 4):
        overwrite(database, page, dice.randbytes(PAGE_BYTES) if seed % 2 else bytes(PAGE_BYTES))
    report = salvage(workspace, tmp_path / "new")
    after = content(tmp_path / "new")
    for table, rows in before.items():
        assert after[table] <= rows, table
        missing = len(rows - after[table])
        counted = report["tables"][table]
        assert counted["lost"] == missing or (
            counted["lost"] < missing and not counted["complete"]
        ), table
    if any(before[table] - after[table] for table in before):
        assert not report["saved_all"]


def test_lost_messages_are_rebuilt_from_their_events(
    workspace: WorkspaceFixture, tmp_path: Path
) -> None:
    database = fold(workspace)
    before = content(database)
    leaves = pages_of(database, "messages")
    for page in leaves[::2]:
        overwrite(database, page, bytes(PAGE_BYTES))
    report = salvage(workspace, tmp_path / "new")
    assert content(tmp_path / "new") == before
    assert report["tables"]["messages"]["rebuilt"] > 100
    assert report["tables"]["messages"]["lost"] == 0
    assert report["findings"] == []
    assert report["saved_all"]


def test_tables_whose_pages_are_all_lost_are_rebuilt_from_events(
    workspace: WorkspaceFixture, tmp_path: Path
) -> None:
    database = fold(workspace)
    before = content(database)
    tables = ("messages", "channels", "topics", "topic_attachments")
    pages = [page for table in tables for page in pages_of(database, table)]
    for page in pages:
        overwrite(database, page, bytes(PAGE_BYTES))
    report = salvage(workspace, tmp_path / "new")
    after = content(tmp_path / "new")
    for table in tables:
        assert {row[1:] for row in after[table]} == {row[1:] for row in before[table]}, table
    assert report["without_parent"] == 0


def test_rows_whose_events_are_lost_are_kept_and_named(
    workspace: WorkspaceFixture, tmp_path: Path
) -> None:
    database = fold(workspace)
    before = content(database)
    pages = pages_of(database, "events")
    for page in pages[10:14]:
        overwrite(database, page, bytes(PAGE_BYTES))
    report = salvage(workspace, tmp_path / "new")
    after = content(tmp_path / "new")
    assert after["messages"] == before["messages"]
    assert after["events"] < before["events"]
    events = report["tables"]["events"]
    assert events["lost"] == len(before["events"]) - len(after["events"])
    lost = {row[0] for row in before["events"] - after["events"]}
    named = {n for first, last in events["lost_ranges"] for n in range(first, last + 1)}
    assert named == lost
    assert report["without_events"]["count"] > 0
    assert report["without_events"]["named"][0].partition(" ")[0] in ("message", "topic", "channel")
    assert not report["saved_all"]


def test_ids_of_lost_events_are_not_used_again(workspace: WorkspaceFixture, tmp_path: Path) -> None:
    database = fold(workspace)
    (highest,) = workspace.execute("SELECT max(event_id) FROM events")[0]
    pages = pages_of(database, "events")
    (sequence,) = pages_of(database, "sqlite_sequence")
    for page in (*pages[-5:], sequence):
        overwrite(database, page, bytes(PAGE_BYTES))
    salvage(workspace, tmp_path / "new")
    with closing(sqlite3.connect(tmp_path / "new")) as connection:
        seq = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'")
        assert seq.fetchone()[0] >= highest


@pytest.mark.parametrize("header_bytes", [16, 100, PAGE_BYTES])
def test_zeroed_header_loses_no_messages(
    workspace: WorkspaceFixture, tmp_path: Path, header_bytes: int
) -> None:
    database = fold(workspace)
    before, db_id = content(database), facts(database)["db_id"]
    overwrite(database, 1, bytes(header_bytes))
    salvage(workspace, tmp_path / "new")
    after = content(tmp_path / "new")
    for table in ("channels", "topics", "messages", "events", "topic_attachments"):
        assert after[table] == before[table], table
    assert facts(tmp_path / "new")["db_id"] == db_id


@pytest.mark.parametrize("kept", [0, 10, 200, 5000, 0.5])
def test_truncated_file_saves_what_is_left(
    workspace: WorkspaceFixture, tmp_path: Path, kept: float
) -> None:
    database = fold(workspace)
    before, size = content(database), database.stat().st_size
    with database.open("r+b") as file:
        file.truncate(int(size * kept) if 0 < kept < 1 else int(kept))
    report = salvage(workspace, tmp_path / "new")
    after = content(tmp_path / "new")
    assert not report["saved_all"]
    for table in ("channels", "topics", "messages", "events", "topic_attachments"):
        assert after[table] <= before[table], table
    if kept == 0.5:
        assert after["messages"]


def test_row_that_another_program_deleted_is_not_rebuilt(
    workspace: WorkspaceFixture, tmp_path: Path
) -> None:
    workspace.execute("DELETE FROM topic_attachments")
    report = salvage(workspace, tmp_path / "new")
    assert content(tmp_path / "new")["topic_attachments"] == set()
    assert report["tables"]["topic_attachments"]["rebuilt"] == 0


def test_commands_of_the_report_put_the_new_file_in_place(
    workspace: WorkspaceFixture, tmp_path: Path
) -> None:
    database = fold(workspace)
    before = content(database)
    overwrite(database, pages_of(database, "messages")[0], bytes(PAGE_BYTES))
    workspace.data.suspect_file("hub").touch()
    report = salvage(workspace, tmp_path / "new")
    damaged = database.read_bytes()
    moves = [command for command in report["commands"] if command.startswith("mv ")]
    clears = [command for command in report["commands"] if command.startswith("agentlip doctor")]
    assert len(moves) >= 2
    assert len(clears) == 1
    for command in moves:
        subprocess.run(command, shell=True, check=True, env=environment())
    assert doctor(workspace, *clears[0].split()[2:4]).exit_code == 0
    assert content(database) == before
    assert database.with_name("db.sqlite3.damaged").read_bytes() == damaged
    workspace.start()
    assert doctor(workspace, "--all").exit_code == 0


def test_damaged_store_is_not_changed(workspace: WorkspaceFixture, tmp_path: Path) -> None:
    database = fold(workspace)
    overwrite(database, pages_of(database, "messages")[0], bytes(PAGE_BYTES))
    stored = {path: path.read_bytes() for path in workspace.data.dir.iterdir() if path.is_file()}
    salvage(workspace, tmp_path / "new")
    after = {path: path.read_bytes() for path in workspace.data.dir.iterdir() if path.is_file()}
    assert after == stored


def test_existing_file_is_never_overwritten(workspace: WorkspaceFixture, tmp_path: Path) -> None:
    (tmp_path / "new").write_text("precious")
    done = doctor(workspace, "repair", "salvage", "hub", "--into", str(tmp_path / "new"))
    assert done.exit_code == 3
    assert "exists already" in done.stderr
    assert (tmp_path / "new").read_text() == "precious"


def test_workspace_in_use_is_refused_by_name(workspace: WorkspaceFixture, tmp_path: Path) -> None:
    with workspace.running():
        done = doctor(workspace, "repair", "salvage", "hub", "--into", str(tmp_path / "new"))
    assert done.exit_code == 3
    assert "pid " in done.stderr
    assert "agentlipd down" in done.stderr
    assert not (tmp_path / "new").exists()


def test_store_without_a_file_is_refused(workspace: WorkspaceFixture, tmp_path: Path) -> None:
    workspace.data.database("broker").unlink()
    done = doctor(workspace, "repair", "salvage", "broker", "--into", str(tmp_path / "new"))
    assert done.exit_code == 3
    assert "no file" in done.stderr or "is missing" in done.stderr


def test_report_for_people_lists_lost_rows_and_commands(
    workspace: WorkspaceFixture, tmp_path: Path
) -> None:
    database = fold(workspace)
    overwrite(database, pages_of(database, "events")[10], bytes(PAGE_BYTES))
    done = doctor(workspace, "repair", "salvage", "hub", "--into", str(tmp_path / "new"))
    assert done.exit_code == 1
    assert "events" in done.stdout
    assert "(rows " in done.stdout
    assert "agentlipd up" in done.stdout
