"""SIGKILL at any moment of a backup: no half backup is listed, and the workspace stays as it
was."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.bus import BusFixture
from tests.support.forks import killed_at
from tests.support.real_backups import Backups
from tests.support.restored_workspace import content_of, rows_of
from tests.support.workspaces import Filled

pytestmark = pytest.mark.slow

STEPS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "sqlite3.connect")


def create(backups: Backups, reach: Callable[[], None]) -> None:
    def count(event: str, arguments: tuple[Any, ...]) -> None:
        if event in STEPS and str(backups.datadir.workspace) in str(arguments[0]):
            reach()

    sys.addaudithook(count)
    backups.create()


def assert_next_one_is_whole(backups: Backups, before: dict[str, str], into: Path) -> None:
    for name in backups.backups.names():
        backups.backups.read(name)
        copy = backups.unpack(name, into / name)
        assert rows_of(copy, "SELECT count(*) FROM messages") != [(0,)]
    assert content_of(backups.datadir).items() >= before.items()
    with backups.backups.only_writer():
        assert backups.remains == []


def test_kill_before_any_step_leaves_no_half_backup(filled: Filled, tmp_path: Path) -> None:
    backups = Backups(filled.path)
    bus = BusFixture(filled.path)
    bus.send(payload={"text": "x" * 5000})
    bus.connection.close()
    before = content_of(filled.datadir)
    step = 0
    while killed_at(step := step + 3, partial(create, backups)):
        assert [each.problem for each in backups.backups.list() if each.problem] == []
        if step % 15 == 0:
            assert_next_one_is_whole(backups, before, tmp_path / f"copies-{step}")
    assert step > 50
    assert len(backups.backups.names()) >= 1
    assert_next_one_is_whole(backups, before, tmp_path / "copies")
