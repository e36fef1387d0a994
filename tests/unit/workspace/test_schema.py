"""A workspace is created once, completely, and never over a lost store."""

import io
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.workspace import manifest
from appliance.workspace.datadir import DataDir
from appliance.workspace.schema import create_workspace, state

CLOCK = SystemClock()


def quiet() -> Log:
    return Log(io.BytesIO())


def make(workspace: Path, locked: bool = False) -> bool:
    return create_workspace(DataDir(workspace), clock=CLOCK, log=quiet(), locked=locked)


def test_a_new_workspace_is_complete_and_private(tmp_path: Path) -> None:
    assert make(tmp_path / "new")
    data = DataDir(tmp_path / "new")
    assert stat.S_IMODE(data.dir.stat().st_mode) == 0o700
    assert stat.S_IMODE(data.token_file.stat().st_mode) == 0o600
    assert len(data.read_token() or "") == 64
    assert (data.dir / ".gitignore").read_text() == "*\n"
    assert not data.lock_file.exists()
    for store in ("auth", "hub"):
        assert stat.S_IMODE(data.database(store).stat().st_mode) == 0o600
        with closing(sqlite3.connect(data.database(store))) as connection:
            assert not state(connection, store).pending
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_creating_a_workspace_again_changes_nothing(tmp_path: Path) -> None:
    make(tmp_path)
    data = DataDir(tmp_path)
    before = {p: p.read_bytes() for p in data.dir.rglob("*") if p.is_file()}
    for locked in (False, True):
        assert not make(tmp_path, locked)
    assert {p: p.read_bytes() for p in data.dir.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("name", ["auth", "courier", "token"])
def test_lost_store_is_not_recreated(tmp_path: Path, name: str) -> None:
    make(tmp_path)
    data = DataDir(tmp_path)
    path = data.dir / manifest.file_of(name)
    path.unlink()
    with pytest.raises(manifest.StoreLost, match=f"{name}: its file"):
        make(tmp_path)
    assert not path.exists()
