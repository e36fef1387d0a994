"""`agentlip recover` as a command; for the hub, lost rows are rebuilt from events."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.doctor.conversation import content, converse, facts
from tests.doctor.repairs import doctor
from tests.doctor.workspace import WorkspaceFixture
from tests.support.commands import agentlip
from tests.support.damage import leaves_of, overwrite
from tests.support.database_files import execute


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


def recover(workspace: WorkspaceFixture) -> dict[str, Any]:
    done = agentlip("recover", "hub", "--yes", "--json", cwd=workspace.data.workspace)
    assert done.code in (0, 1), done.err
    assert done.code == (0 if done.json["complete"] else 1)
    report: dict[str, Any] = done.json
    return report


def fold(workspace: WorkspaceFixture) -> Path:
    workspace.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return workspace.data.database("hub")


def test_store_with_a_damaged_header_is_saved_completely(workspace: WorkspaceFixture) -> None:
    database = workspace.data.database("hub")
    before, known = content(database), facts(database)
    overwrite(database, 1, bytes(100))
    report = recover(workspace)
    assert content(database) == before
    assert facts(database) == known | {
        key: value for key, value in facts(database).items() if key.startswith("x_id_")
    }
    assert report["complete"]
    assert not any(table["lost"] or table["rebuilt"] for table in report["tables"].values())
    assert database.stat().st_mode & 0o777 == 0o600
    assert recover(workspace)["intact"]


def test_lost_messages_are_rebuilt_from_their_events(workspace: WorkspaceFixture) -> None:
    database = fold(workspace)
    before = content(database)
    leaves = leaves_of(database, "messages")
    for page in leaves[::2]:
        overwrite(database, page)
    report = recover(workspace)
    assert content(database) == before
    assert report["tables"]["messages"]["rebuilt"] > 100
    assert report["tables"]["messages"]["lost"] == 0
    assert report["complete"]


def test_rows_whose_events_are_lost_are_kept_and_named(workspace: WorkspaceFixture) -> None:
    database = fold(workspace)
    before = content(database)
    pages = leaves_of(database, "events")
    for page in pages[10:14]:
        overwrite(database, page)
    report = recover(workspace)
    after = content(database)
    assert after["messages"] == before["messages"]
    assert after["events"] < before["events"]
    events = report["tables"]["events"]
    assert events["lost"] == len(before["events"]) - len(after["events"])
    assert any("although their events are lost" in note for note in report["notes"])
    assert not report["complete"]


def test_ids_of_lost_events_are_not_used_again(workspace: WorkspaceFixture) -> None:
    database = fold(workspace)
    (highest,) = workspace.execute("SELECT max(event_id) FROM events")[0]
    pages = leaves_of(database, "events")
    (sequence,) = leaves_of(database, "sqlite_sequence")
    for page in (*pages[-5:], sequence):
        overwrite(database, page)
    recover(workspace)
    ((seq,),) = execute(database, "SELECT seq FROM sqlite_sequence WHERE name = 'events'")
    assert seq >= highest


def test_row_that_another_program_deleted_is_not_rebuilt(workspace: WorkspaceFixture) -> None:
    workspace.execute("DELETE FROM topic_attachments")
    database = fold(workspace)
    overwrite(database, 1, bytes(100))
    report = recover(workspace)
    assert content(database)["topic_attachments"] == set()
    assert report["tables"]["topic_attachments"]["rebuilt"] == 0


def test_recovered_workspace_is_served_and_keeps_the_damaged_file(
    workspace: WorkspaceFixture,
) -> None:
    database = fold(workspace)
    before = content(database)
    overwrite(database, leaves_of(database, "messages")[0])
    workspace.data.suspect_file("hub").touch()
    damaged = database.read_bytes()
    report = recover(workspace)
    assert content(database) == before
    kept = workspace.data.workspace / report["kept_as"] / ".agentlip" / database.name
    assert kept.read_bytes() == damaged
    assert not workspace.data.suspect_file("hub").exists()
    workspace.start()
    assert doctor(workspace, "--all").exit_code == 0
