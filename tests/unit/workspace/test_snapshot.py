"""Snapshots contain everything, are checked, and the oldest are removed."""

import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from appliance.workspace import snapshot


def test_snapshot_contains_the_write_ahead_log(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.sqlite3", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (a)")
        connection.execute("INSERT INTO t VALUES ('kept')")
        copy = snapshot.take(connection, tmp_path / "backups", "a.sqlite3", 3, 1_700_000_000_123)
    assert copy.name == "a.sqlite3.backup-v3-20231114T221320123Z"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "backups").iterdir()] == [copy.name]
    with closing(sqlite3.connect(copy)) as opened:
        assert opened.execute("SELECT a FROM t").fetchall() == [("kept",)]
        assert opened.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_snapshot_that_fails_its_check_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(_: Path) -> None:
        raise snapshot.SnapshotDamaged("row 1 missing")

    monkeypatch.setattr(snapshot, "_check", damaged)
    with (
        closing(sqlite3.connect(tmp_path / "a.sqlite3")) as connection,
        pytest.raises(snapshot.SnapshotDamaged),
    ):
        snapshot.take(connection, tmp_path / "backups", "a.sqlite3", 1, 0)
    assert not list((tmp_path / "backups").iterdir())


def test_five_newest_snapshots_of_each_file_are_kept(tmp_path: Path) -> None:
    names = [f"a.sqlite3.backup-v{9 - i}-2026010{i}T000000000Z" for i in range(1, 8)]
    other = "b.sqlite3.backup-v1-20200101T000000000Z"
    for name in (*names, other):
        (tmp_path / name).touch()
    assert [path.name for path in snapshot.prune(tmp_path, "a.sqlite3")] == names[:2]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names[2:], other])
