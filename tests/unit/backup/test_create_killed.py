"""SIGKILL at any moment of a backup: no half backup is listed, and the workspace stays as it
was."""

import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from appliance.backup.store_copy import tables
from appliance.workspace.datadir import STORES, DataDir
from tests.support.backup_workspace import Backups
from tests.support.forks import killed_at
from tests.support.workspaces import Filled

pytestmark = pytest.mark.slow

STEPS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "sqlite3.connect")


def content(datadir: DataDir) -> dict[str, Any]:
    """Every row of every store, and every other file outside of the backups."""
    result: dict[str, Any] = {}
    for store in STORES:
        with closing(sqlite3.connect(datadir.database(store))) as connection:
            for table in tables(connection):
                rows = connection.execute(f"SELECT * FROM {table}").fetchall()
                result[f"{store}.{table}"] = sorted(rows, key=repr)
    for path in datadir.workspace.rglob("*"):
        if path.is_file() and "backup" not in str(path) and "sqlite3" not in path.name:
            result[str(path)] = path.read_bytes()
    return result


def create(backups: Backups, reach: Callable[[], None]) -> None:
    def count(event: str, arguments: tuple[Any, ...]) -> None:
        if event in STEPS and str(backups.datadir.workspace) in str(arguments[0]):
            reach()

    sys.addaudithook(count)
    backups.create()


def assert_next_one_is_whole(backups: Backups, before: dict[str, Any], into: Path) -> None:
    for name in backups.backups.names():
        backups.backups.read(name)
        copy = backups.unpack(name, into / name)
        assert {key for key in content(copy) if "." in key} >= {"hub.messages"}
    assert content(backups.datadir) == before
    with backups.backups.only_writer():
        assert backups.remains == []


def test_kill_before_any_step_leaves_no_half_backup(filled: Filled, tmp_path: Path) -> None:
    backups = Backups(filled.path)
    before = content(filled.datadir)
    step = 0
    while killed_at(step := step + 3, partial(create, backups)):
        assert [each.problem for each in backups.backups.list() if each.problem] == []
        if step % 15 == 0:
            assert_next_one_is_whole(backups, before, tmp_path / f"copies-{step}")
    assert step > 50
    assert len(backups.backups.names()) >= 1
    assert_next_one_is_whole(backups, before, tmp_path / "copies")
