"""Each repair: break the workspace, plan, apply, find nothing, and the data is what it was."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from doctor.checks import leftovers
from doctor.saved_files import SAVED, folders
from tests.doctor.breakages import skipped_index
from tests.doctor.repairs import (
    data_of,
    drop_search,
    in_sql,
    leave_server_file,
    open_token,
    repair,
)
from tests.doctor.workspace import WorkspaceFixture
from tests.support.database_files import execute

pytestmark = pytest.mark.usefixtures("some_messages")


def drop_objects(workspace: WorkspaceFixture) -> None:
    in_sql(workspace, "DROP INDEX idx_messages_topic", "DROP TRIGGER prevent_event_delete")


def alter_search_trigger(workspace: WorkspaceFixture) -> None:
    """Changes that were made meanwhile are not in the index."""
    in_sql(
        workspace,
        "DROP TRIGGER messages_fts_update",
        "CREATE TRIGGER messages_fts_update AFTER UPDATE ON messages BEGIN SELECT 1; END",
        "UPDATE messages SET content_raw = 'good bye' WHERE id = 'm000001'",
    )


def leave_temporary_files(workspace: WorkspaceFixture) -> None:
    names = (".token.0123456789abcdef", ".db.sqlite3.new", "backups/db.sqlite3.backup-v6-1.partial")
    for name in names:
        path = workspace.data.dir / name
        path.write_text("x")
        path.chmod(0o600)
        os.utime(path, (0, 0))


@pytest.mark.parametrize(
    ("breakage", "check"),
    [(leave_temporary_files, "host.leftovers"), (alter_search_trigger, "store.objects")],
)
def test_repair_leaves_nothing_to_find_and_the_data_as_it_was(
    workspace: WorkspaceFixture, breakage: Callable[[WorkspaceFixture], None], check: str
) -> None:
    """What is in no row of the tables of breakages."""
    breakage(workspace)
    before = data_of(workspace)
    planned = json.loads(repair(workspace, "--json", "--dry-run").stdout)
    assert planned["applied"] is False
    assert check in [step["check"] for step in planned["plan"]["steps"]]
    assert workspace.find(check) != []

    assert repair(workspace, "--yes").exit_code == 0
    assert workspace.find_all() == []
    assert workspace.find("hub.search-in-step") == []
    assert data_of(workspace) == before
    assert json.loads(repair(workspace, "--json", "--yes").stdout)["plan"]["steps"] == []


@pytest.mark.parametrize("breakage", [leave_server_file, skipped_index])
def test_repair_saves_what_it_changes(
    workspace: WorkspaceFixture, breakage: Callable[[WorkspaceFixture], None]
) -> None:
    breakage(workspace)
    before = data_of(workspace)
    shown = repair(workspace, "--all", "--json")
    steps = json.loads(shown.stdout)["plan"]["steps"]
    planned = {Path(name) for step in steps for name in step["saves"]}
    repair(workspace, "--all", "--yes")
    (folder,) = folders(workspace.data)
    saved = [path for path in folder.rglob("*") if path.is_file()]
    assert {path.relative_to(folder / SAVED) for path in saved} == planned
    for path in (folder, *folder.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    copies = [path for path in saved if path.name == "db.sqlite3"]
    for copy in copies:
        count = execute(copy, "SELECT count(*) FROM messages NOT INDEXED")
        assert count == workspace.execute("SELECT count(*) FROM messages")
    assert data_of(workspace) == before


def is_copied(workspace: WorkspaceFixture, store: str = "hub") -> bool:
    """Whether the last repair has a copy of the store."""
    name = workspace.data.database(store).relative_to(workspace.data.workspace)
    return any((folder / SAVED / name).exists() for folder in folders(workspace.data)[-1:])


def test_derived_data_is_built_without_a_copy(workspace: WorkspaceFixture) -> None:
    drop_search(workspace)
    in_sql(workspace, "DROP INDEX idx_messages_topic")
    assert repair(workspace, "--all", "--yes").exit_code == 0
    assert not is_copied(workspace)
    drop_objects(workspace)
    assert repair(workspace, "--all", "--yes").exit_code == 0
    assert is_copied(workspace)


def test_vacuum_returns_unused_pages(
    workspace: WorkspaceFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_sql(
        workspace,
        "CREATE TABLE theirs (text BLOB)",
        "INSERT INTO theirs SELECT randomblob(5000) FROM"
        " (WITH RECURSIVE n(i) AS (SELECT 1 UNION SELECT i + 1 FROM n WHERE i < 200)"
        " SELECT i FROM n)",
        "DELETE FROM theirs",
    )
    before, size = data_of(workspace), workspace.data.database("hub").stat().st_size
    assert workspace.find("store.free-pages") == []
    monkeypatch.setattr(leftovers, "FREE_BYTES_MIN", 1000)
    result = repair(workspace, "--run", "store.free-pages", "--yes")
    assert "[done] store.free-pages" in result.stdout
    assert workspace.find("store.free-pages") == []
    assert workspace.data.database("hub").stat().st_size < size / 2
    assert data_of(workspace) == before
    assert workspace.find_all() == []
    assert workspace.find("hub.search-in-step") == []


# -- consent and exit codes ----------------------------------------------------------------


def test_without_a_terminal_the_plan_is_only_shown(workspace: WorkspaceFixture) -> None:
    open_token(workspace)
    result = repair(workspace)
    assert result.exit_code == 2
    assert "1. host.private: give only the owner access to .agentlip/token" in result.stdout
    assert "add --yes" in result.stdout
    assert workspace.find("host.private") != []
    assert not (workspace.data.dir / "repairs").exists()


def test_leftovers_do_not_include_new_and_foreign_files(workspace: WorkspaceFixture) -> None:
    (workspace.data.dir / ".token.0123456789abcdef").write_text("being written")
    for name in (".notes", "backups/db.sqlite3.backup-v6-1", ".gitignore"):
        path = workspace.data.dir / name
        path.touch()
        os.utime(path, (0, 0))
    assert workspace.find("host.leftovers") == []
    with workspace.running():
        leave_temporary_files(workspace)
        assert workspace.find("host.leftovers") == []
