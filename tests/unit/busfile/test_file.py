"""Opening, adopting and refusing the file of a bus; transactions; SQLite's errors."""

import os
import sqlite3

import pytest

from appliance.busfile import file, schema
from appliance.busfile.file import BusPaths, connect, find_paths, transaction
from appliance.kernel.ownership import WorkspaceNotTrusted
from tests.contract.test_walls import ROOT

SPEC = (ROOT / "appliance/busfile/schema_v1.sql").read_text()


def foreign(paths, *statements):
    """A bus that another program has made, with the rows of `statements`."""
    paths.dir.mkdir(parents=True)
    connection = sqlite3.connect(paths.database)
    connection.executescript(SPEC)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def objects(connection):
    return dict(connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name"))


def test_new_file_has_the_pragmas_and_tables_of_the_specification(tmp_path):
    connection = connect(BusPaths(tmp_path))
    pragmas = {
        name: connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("busy_timeout", "foreign_keys", "journal_mode", "synchronous")
    }
    assert pragmas == {
        "busy_timeout": 5000, "foreign_keys": 1, "journal_mode": "wal", "synchronous": 1,
    }  # fmt: skip
    specified = sqlite3.connect(":memory:")
    specified.executescript(SPEC)
    assert objects(specified).items() <= objects(connection).items()
    assert connect(BusPaths(tmp_path), durable=True).execute("PRAGMA synchronous").fetchone() == (
        2,
    )
    assert (tmp_path / ".worker-state/.gitignore").read_text().endswith("*\n!bus.jsonl\n")


def test_foreign_file_is_adopted_and_nothing_of_it_altered(tmp_path):
    paths = BusPaths(tmp_path)
    foreign(
        paths,
        "INSERT INTO messages (id, ts_ms, from_agent, type) VALUES ('a', 1, 'w', 'their_type')",
        "INSERT INTO task_claims VALUES ('t', 'w', 1, 2)",
    )
    before = objects(sqlite3.connect(paths.database))
    connection = connect(paths)
    after = objects(connection)
    assert before.items() <= after.items()
    added = {name for name in after if name not in before and not name.startswith("sqlite_")}
    assert {name for name in added if not name.startswith("x_")} == {"workers"}
    assert connection.execute("SELECT id, type FROM messages").fetchall() == [("a", "their_type")]
    assert connection.execute("SELECT * FROM x_fences").fetchall() == [("t", 1)]


@pytest.mark.parametrize(
    ("statement", "error", "words"),
    [
        ("UPDATE meta SET value = '2'", schema.BusSchemaNewer, "version 2"),
        ("UPDATE meta SET value = 'x'", schema.BusSchemaUnknown, "'x'"),
        ("DELETE FROM meta", schema.BusSchemaUnknown, "version"),
        ("DROP TABLE cursors", schema.BusSchemaUnknown, "it lacks cursors"),
        ("DROP TABLE meta", schema.BusSchemaUnknown, "it lacks meta"),
    ],
)
def test_other_schema_is_refused_and_the_file_left_alone(
    tmp_path, monkeypatch, statement, error, words
):
    monkeypatch.setattr(file, "BUSY_TIMEOUT_MS", 20)
    paths = BusPaths(tmp_path)
    foreign(paths, statement)
    before = objects(sqlite3.connect(paths.database))
    with pytest.raises(error, match=words):
        connect(paths)
    assert objects(sqlite3.connect(paths.database)) == before


def test_file_that_is_not_a_database_is_damage(tmp_path):
    paths = BusPaths(tmp_path)
    paths.dir.mkdir()
    paths.database.write_bytes(b"not a database at all" * 100)
    with pytest.raises(file.BusDamaged):
        connect(paths)


def test_lock_of_another_program_is_busy_after_the_timeout(tmp_path, monkeypatch):
    paths = BusPaths(tmp_path)
    connection, other = connect(paths), connect(paths)
    monkeypatch.setattr(file, "BUSY_TIMEOUT_MS", 20)
    with transaction(other), pytest.raises(file.BusBusy), transaction(connection):
        pass
    with transaction(connection):
        connection.execute("INSERT INTO meta VALUES ('x_a', '1')")


def test_missing_file_is_an_error_only_without_create(tmp_path):
    with pytest.raises(file.BusMissing):
        connect(BusPaths(tmp_path), create=False)
    assert not (tmp_path / ".worker-state").exists()


def test_workspace_is_searched_upwards(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTLIP_CEILING_DIRECTORIES", str(tmp_path))
    below = tmp_path / "repository" / "worktrees" / "task"
    (below / ".worker-state").mkdir(parents=True)
    workspace = tmp_path / "repository"
    with pytest.raises(file.BusMissing):
        find_paths(start=tmp_path / "repository")
    (workspace / ".agentlip").mkdir()
    assert find_paths(start=workspace).workspace == workspace
    assert find_paths(start=below).workspace == below
    connect(BusPaths(workspace)).close()
    assert find_paths(start=below).workspace == workspace  # a checkout of the export is not a bus
    assert find_paths(below).workspace == below


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_bus_of_another_user_is_not_taken_by_search(tmp_path):
    connect(BusPaths(tmp_path)).close()
    os.chown(tmp_path / ".worker-state/bus.db", 12345, -1)
    with pytest.raises(WorkspaceNotTrusted):
        find_paths(start=tmp_path)
