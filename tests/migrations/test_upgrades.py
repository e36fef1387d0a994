"""Upgrades from an older schema to the newest, and files that must not be opened."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from appliance.kernel.store_files import suspect_marker
from appliance.workspace import schema
from appliance.workspace.migration import load, newest, read
from appliance.workspace.schema import (
    MigrationEdited,
    MigrationFailed,
    SchemaState,
    SchemaTooNew,
    StoreDamaged,
)
from tests.migrations.store_file import (
    TWO_STEPS,
    StoreFixture,
    after_first_step,
    say_something,
    with_step,
)
from tests.support.database_files import damage_table

STORES = ("hub", "auth", "outbox", "courier", "broker")
NEWEST = newest(load("hub"))


def state(store_file: StoreFixture) -> SchemaState:
    """Read the state of a file whose store has TWO_STEPS."""
    with closing(sqlite3.connect(store_file.database)) as connection:
        return schema.state(connection, store_file.store, TWO_STEPS)


@pytest.fixture
def hub(tmp_path: Path) -> StoreFixture:
    return StoreFixture(tmp_path)


def test_pause_of_an_agent_is_kept_by_the_step_that_adds_bounds(hub: StoreFixture) -> None:
    hub.migrate(tuple(step for step in load("hub") if step.number < 6))
    columns = "name, state, state_since, paused_by, paused_at, paused_because"
    hub.execute(
        f"INSERT INTO x_agents ({columns}) VALUES ('ada', 'asleep', 't0', 'alice', 't1', 'freeze')"
    )
    hub.execute(
        f"INSERT INTO x_agents ({columns}) VALUES ('bob', 'asleep', 't0', NULL, NULL, NULL)"
    )
    hub.migrate()
    rows = hub.execute("SELECT kind, subject, cause, paused_by, reason FROM x_pauses")
    assert rows == [("principal", "ada", "operator", "alice", "freeze")]
    assert hub.execute("SELECT count(paused_by) FROM x_agents") == [(0,)]


def test_the_hubs_tables_are_the_specifications_word_for_word(hub: StoreFixture) -> None:
    """Each CREATE in the file is in the database as it is in the file."""
    hub.migrate()
    stored = {name: sql for _, name, sql in hub.shape()}
    text = next(each for each in load("hub") if each.number == 1).sql
    printed = re.findall(
        r"^(CREATE (?:TABLE|(?:UNIQUE )?INDEX|TRIGGER) IF NOT EXISTS (\w+).*?;)\n(?=\n|[C-]|$)",
        text,
        re.MULTILINE | re.DOTALL,
    )
    assert len(printed) == 7 + 11 + 3
    for sql, name in printed:
        assert stored[name] == sql.replace(" IF NOT EXISTS", "").rstrip(";")
    ours = set(stored) - {name for _, name in printed}
    assert {
        str(name) for name in ours if not str(name).startswith(("x_", "sqlite_", "messages_fts"))
    } == set()


def test_older_store_gets_the_missing_step_and_keeps_its_rows(tmp_path: Path) -> None:
    (tmp_path / "fresh").mkdir()
    fresh = StoreFixture(tmp_path / "fresh", "notes")
    fresh.migrate(TWO_STEPS)
    older = StoreFixture(tmp_path, "notes")
    after_first_step(older)
    before = state(older)
    assert (before.schema, before.program, before.pending) == (1, 2, ("0002_authors.sql",))
    after = older.migrate(TWO_STEPS)
    assert (after.schema, after.program, after.compat, after.pending) == (2, 2, 2, ())
    assert older.shape() == fresh.shape()
    rows = older.execute("SELECT * FROM notes")
    assert rows == [(number, "hello", "unknown") for number in range(5)]


@pytest.mark.parametrize("store", STORES)
def test_twice_is_nothing(tmp_path: Path, store: str) -> None:
    store_file = StoreFixture(tmp_path, store)
    first = store_file.migrate()
    rows = store_file.execute("SELECT * FROM x_migrations") + store_file.execute(
        "SELECT * FROM meta"
    )
    store_file.lines.truncate(0)
    assert store_file.migrate() == first
    assert rows == store_file.execute("SELECT * FROM x_migrations") + store_file.execute(
        "SELECT * FROM meta"
    )
    assert not store_file.lines.getvalue().strip(b"\0")


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE x_new (a); CREAT TABLE x_other (a);",
        "CREATE TABLE x_new (a); INSERT INTO channels VALUES ('c', 'general', NULL, 'now');",
        "CREATE TABLE x_new (a); UPDATE topics SET channel_id = 'nowhere';",
    ],
)
def test_a_failing_step_changes_nothing(hub: StoreFixture, sql: str) -> None:
    hub.migrate()
    say_something(hub)
    before = hub.shape() + hub.execute("SELECT * FROM topics")
    with pytest.raises(MigrationFailed, match=f"{NEWEST + 1:04}_next"):
        hub.migrate(with_step("hub", sql))
    assert hub.shape() + hub.execute("SELECT * FROM topics") == before
    assert hub.migrate().schema == NEWEST


# -- what is refused -----------------------------------------------------------------------


def test_an_older_program_may_open_what_promises_it_can(hub: StoreFixture) -> None:
    hub.migrate(with_step("hub", "CREATE TABLE x_new (a);", opens_with=NEWEST))
    state = hub.migrate()
    assert (state.schema, state.program, state.compat) == (NEWEST + 1, NEWEST, NEWEST)


def test_older_program_gets_a_hint_to_upgrade(hub: StoreFixture) -> None:
    hub.migrate(with_step("hub", "CREATE TABLE x_new (a);", opens_with=NEWEST + 1))
    before = hub.database.read_bytes()
    with pytest.raises(SchemaTooNew, match="newer program") as error:
        hub.migrate()
    assert "upgrade" in error.value.hint
    assert hub.database.read_bytes() == before


@pytest.mark.parametrize(
    ("key", "value"),
    [("schema_version", "2"), ("x_compat", str(NEWEST + 1)), ("x_compat", "999999")],
)
def test_a_newer_number_is_refused(hub: StoreFixture, key: str, value: str) -> None:
    hub.migrate()
    hub.execute("UPDATE meta SET value = ? WHERE key = ?", value, key)
    with pytest.raises(SchemaTooNew):
        hub.migrate()


def test_a_released_file_that_was_edited_is_refused(hub: StoreFixture) -> None:
    hub.migrate()
    released = load("hub")
    edited = tuple(read(e.name, e.sql + "-- x\n") if e.number == 1 else e for e in released)
    with pytest.raises(MigrationEdited, match="0001_hub") as error:
        hub.migrate(edited)
    assert "reinstall" in error.value.hint
    with pytest.raises(MigrationEdited):
        hub.migrate(tuple(e for e in released if not e.optional))
    windows = tuple(read(e.name, e.sql.replace("\n", "\r\n")) for e in released)
    assert not hub.migrate(windows).edited


@pytest.mark.parametrize("content", [b"not a database, only words" * 100, b"SQLite"])
def test_file_that_is_not_a_database_is_damaged(hub: StoreFixture, content: bytes) -> None:
    hub.database.write_bytes(content)
    with pytest.raises(StoreDamaged):
        hub.migrate()
    assert hub.database.read_bytes() == content


def test_a_log_without_its_database_is_damage(hub: StoreFixture) -> None:
    hub.migrate()
    with closing(sqlite3.connect(hub.database, isolation_level=None)) as connection:
        connection.execute("INSERT INTO meta VALUES ('a', 'b')")
        log = hub.database.with_name(hub.database.name + "-wal")
        kept = log.read_bytes()
    hub.database.unlink()
    log.write_bytes(kept)
    with pytest.raises(StoreDamaged, match="missing"):
        hub.migrate()
    assert log.read_bytes() == kept


def test_a_damaged_page_is_found_at_the_start(hub: StoreFixture) -> None:
    hub.migrate()
    say_something(hub, 500)
    damage_table(hub.database)
    with pytest.raises(StoreDamaged):
        hub.migrate()


@pytest.mark.parametrize("store", STORES)
def test_a_database_of_something_else_is_refused(tmp_path: Path, store: str) -> None:
    store_file = StoreFixture(tmp_path, store)
    store_file.execute("CREATE TABLE bookmarks (url TEXT)")
    with pytest.raises(StoreDamaged, match="not for this store"):
        store_file.migrate()
    assert [name for _, name, _ in store_file.shape()] == ["bookmarks"]


def test_a_suspect_store_waits_for_the_doctor(hub: StoreFixture) -> None:
    hub.migrate()
    suspect_marker(hub.database).touch()
    with pytest.raises(StoreDamaged) as error:
        hub.migrate()
    assert error.value.hint == "agentlip doctor clear hub"
