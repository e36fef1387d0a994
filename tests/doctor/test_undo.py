"""A repair of derived data saves the SQL that undoes it, and that SQL does."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from doctor import undo
from doctor.journal import RepairJournal, journals
from doctor.repair import outline
from doctor.run import examine, select
from tests.doctor.repairs import data_of, drop_search, in_sql, repair
from tests.doctor.test_repair import (
    alter_objects,
    alter_search_trigger,
    drop_objects,
    empty_search,
    skip_index,
)
from tests.doctor.workspace import NOW, WorkspaceFixture

pytestmark = pytest.mark.slow

SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY 1, 2"
RECORDS = "SELECT * FROM x_migrations ORDER BY name"


@pytest.fixture
def workspace(tmp_path: Path) -> WorkspaceFixture:
    made = WorkspaceFixture(tmp_path)
    made.talk(5)
    made.index()
    return made


def lose_scopes(workspace: WorkspaceFixture) -> None:
    """Three events beside each other lose their scopes, and one alone does."""
    for number in range(8):
        workspace.execute(
            "INSERT INTO events (ts, name, scope_channel_id, entity_type, entity_id,"
            " data_json) VALUES (?, 'channel.created', ?, 'channel', 'ch_1', '{}')",
            NOW, None if number in (2, 3, 4, 7) else "ch_1",
        )  # fmt: skip


def lose_trigger_and_scopes(workspace: WorkspaceFixture) -> None:
    lose_scopes(workspace)
    in_sql(workspace, "DROP TRIGGER prevent_event_mutation")


def another_index_of_messages(workspace: WorkspaceFixture) -> None:
    """As another program makes it after the specification."""
    in_sql(
        workspace,
        "DROP TABLE x_fts",
        "DROP TRIGGER messages_fts_update",
        "DROP TABLE messages_fts",
        "CREATE VIRTUAL TABLE messages_fts USING fts5"
        "(content_raw, content = 'messages', content_rowid = 'rowid')",
        "CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages BEGIN"
        " INSERT INTO messages_fts(rowid, content_raw) VALUES (new.rowid, new.content_raw); END",
    )


def state_of(workspace: WorkspaceFixture) -> Any:
    return workspace.execute(SCHEMA), workspace.execute(RECORDS), data_of(workspace)


def run_scripts(workspace: WorkspaceFixture, journal: RepairJournal) -> None:
    """The newest first."""
    for path in sorted(journal.folder.glob("undo-*.sql"), reverse=True):
        with closing(sqlite3.connect(workspace.data.database("hub"))) as connection:
            connection.executescript(path.read_text())


BREAKAGES = (
    drop_objects, alter_objects, alter_search_trigger, drop_search, empty_search, lose_scopes,
    lose_trigger_and_scopes, another_index_of_messages,
)  # fmt: skip


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_script_undoes_the_repair(
    workspace: WorkspaceFixture, breakage: Callable[[WorkspaceFixture], None]
) -> None:
    breakage(workspace)
    before = state_of(workspace)
    assert repair(workspace, "--all", "--yes").exit_code == 0
    assert state_of(workspace) != before
    (journal,) = journals(workspace.data)
    assert len(list(journal.folder.glob("undo-*.sql"))) == len(journal.plan.steps) > 0
    assert not (journal.folder / "saved").exists()

    run_scripts(workspace, journal)
    assert state_of(workspace) == before
    assert workspace.find("store.integrity") == []

    assert repair(workspace, "--all", "--yes").exit_code == 0
    assert workspace.find_all() == []


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_script_changes_nothing_if_its_step_was_not_applied(
    workspace: WorkspaceFixture, breakage: Callable[[WorkspaceFixture], None]
) -> None:
    breakage(workspace)
    before = state_of(workspace)
    with workspace.context() as context:
        outcomes = examine(context, select([], True))
        steps = outline(context, outcomes).steps
    assert steps
    for step in steps:
        script = undo.script(workspace.data, step)
        assert script is not None
        with closing(sqlite3.connect(workspace.data.database("hub"))) as connection:
            connection.executescript(script)
        assert state_of(workspace) == before


def test_repair_of_a_large_store_saves_kilobytes(workspace: WorkspaceFixture) -> None:
    workspace.talk(20_000)
    drop_search(workspace)
    drop_objects(workspace)
    lose_scopes(workspace)
    assert repair(workspace, "--all", "--yes").exit_code == 0
    (journal,) = journals(workspace.data)
    saved = sum(path.stat().st_size for path in journal.folder.rglob("*") if path.is_file())
    assert saved < 20_000 < 2_000_000 < workspace.data.database("hub").stat().st_size


def test_store_with_a_damaged_index_is_copied(workspace: WorkspaceFixture) -> None:
    """The index may contain what the table has lost."""
    skip_index(workspace)
    assert repair(workspace, "--all", "--yes").exit_code == 0
    assert is_copied(workspace)


def test_rebuild_of_indexes_copies_only_a_store_with_a_damaged_one(
    workspace: WorkspaceFixture,
) -> None:
    assert repair(workspace, "rebuild", "indexes", "--yes").exit_code == 0
    assert not is_copied(workspace)
    skip_index(workspace)
    assert repair(workspace, "rebuild", "indexes", "--yes").exit_code == 0
    assert is_copied(workspace)
    assert not is_copied(workspace, "auth")


def test_index_of_another_program_with_texts_of_its_own_is_copied(
    workspace: WorkspaceFixture,
) -> None:
    in_sql(
        workspace,
        "DROP TABLE x_fts",
        "DROP TRIGGER messages_fts_update",
        "DROP TABLE messages_fts",
        "CREATE VIRTUAL TABLE messages_fts USING fts5(content_raw)",
    )
    assert repair(workspace, "--all", "--yes").exit_code == 0
    assert is_copied(workspace)


def is_copied(workspace: WorkspaceFixture, store: str = "hub") -> bool:
    """Whether the last repair has a copy of the store."""
    name = workspace.data.database(store).relative_to(workspace.data.workspace)
    return journals(workspace.data)[-1].saved(str(name)).exists()
