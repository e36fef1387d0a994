"""Killed at any statement or short of space: the next start goes on."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from appliance.kernel.errors import ApplianceError, StorageFull
from appliance.workspace.datadir import DataDirNotWritable
from appliance.workspace.migration import Migration, load, newest
from appliance.workspace.schema import MigrationFailed
from tests.migrations.store_file import (
    TWO_STEPS,
    StoreFixture,
    after_first_step,
    check_search,
    say_something,
    trace_statements,
    with_step,
)
from tests.support.forks import killed_at
from tests.support.smalldisk import SmallDisk, small_disk
from tests.support.workspaces import FOREIGN_DDL


def nothing(_: StoreFixture) -> None:
    """A start without a file."""


def without_search(store_file: StoreFixture) -> None:
    store_file.migrate(tuple(each for each in load("hub") if not each.optional))
    say_something(store_file, 5)


def other_program(store_file: StoreFixture) -> None:
    with closing(sqlite3.connect(store_file.database)) as connection:
        connection.executescript(FOREIGN_DDL)
        connection.execute("INSERT INTO meta VALUES ('schema_version', '1')")
        connection.commit()
    say_something(store_file, 5)


def migrate(
    store_file: StoreFixture, steps: tuple[Migration, ...], reach: Callable[[], None]
) -> None:
    trace_statements(reach)
    store_file.migrate(steps)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "steps", "table", "before"),
    [
        ("hub", load("hub"), "messages", nothing),
        ("hub", load("hub"), "messages", without_search),
        ("hub", load("hub"), "messages", other_program),
        ("notes", TWO_STEPS, "notes", after_first_step),
    ],
    ids=["nothing", "without-search", "other-program", "two-steps"],
)
def test_killed_at_any_statement_the_next_start_completes(
    tmp_path: Path,
    store: str,
    steps: tuple[Migration, ...],
    table: str,
    before: Callable[[StoreFixture], None],
) -> None:
    (tmp_path / "model").mkdir()
    model = StoreFixture(tmp_path / "model", store)
    before(model)
    model.migrate(steps)
    (tmp_path / "start").mkdir()
    before(StoreFixture(tmp_path / "start", store))
    statement = 0
    killed = True
    while killed:
        statement += 3 if store == "hub" else 1
        folder = tmp_path / str(statement)
        shutil.copytree(tmp_path / "start", folder)
        store_file = StoreFixture(folder, store)
        killed = killed_at(statement, partial(migrate, store_file, steps))
        state = store_file.migrate(steps)
        assert not state.pending
        assert not state.optional_missing
        assert store_file.shape() == model.shape()
        rows = f"SELECT * FROM {table}"
        assert store_file.execute(rows) == model.execute(rows)
        if store == "hub":
            with closing(sqlite3.connect(store_file.database, isolation_level=None)) as connection:
                check_search(connection)
        assert not [path for path in folder.iterdir() if path.name.startswith(".")]
        shutil.rmtree(folder)
    assert statement > 10


# -- a disk without room -------------------------------------------------------------------


def refused(
    store_file: StoreFixture, migrations: tuple[Migration, ...] | None
) -> ApplianceError | None:
    try:
        store_file.migrate(migrations)
    except (MigrationFailed, DataDirNotWritable, StorageFull) as error:
        return error
    return None


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path, "tmpfs", 1) as disk:
        yield disk


@pytest.mark.root
@pytest.mark.parametrize("free_bytes", range(0, 700_000, 122_880))
def test_without_room_a_new_workspace_fails_with_a_sentence_and_succeeds_later(
    disk: SmallDisk, free_bytes: int
) -> None:
    disk.leave(free_bytes)
    store_file = StoreFixture(disk.root)
    refusal = refused(store_file, None)
    assert refusal is None or refusal.hint
    disk.clear()
    assert not store_file.migrate().pending
    assert not [path for path in disk.root.iterdir() if path.name.startswith(".")]


@pytest.mark.root
@pytest.mark.parametrize("free_bytes", range(0, 400_000, 122_880))
def test_without_room_an_upgrade_fails_whole_and_succeeds_later(
    disk: SmallDisk, free_bytes: int
) -> None:
    store_file = StoreFixture(disk.root)
    store_file.migrate()
    say_something(store_file, 50)
    store_file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = store_file.execute("SELECT * FROM messages")
    disk.leave(free_bytes)
    grown = with_step(
        "hub",
        "CREATE TABLE x_big AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
        " LIMIT 2000) SELECT i, 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' AS t FROM n;",
    )
    refusal = refused(store_file, grown)
    if refusal is not None:
        assert refusal.hint
        disk.clear()
        kept = store_file.execute("SELECT value FROM meta WHERE key = 'x_schema'")
        assert kept == [(str(newest(load("hub"))),)]
        assert store_file.migrate(grown).schema == newest(grown)
    assert store_file.execute("SELECT * FROM messages") == before
    assert store_file.execute("SELECT count(*) FROM x_big") == [(2000,)]
