"""Stores whose files were removed while a process has them open."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from appliance.kernel.reader import open_connection
from appliance.workspace import removed_files
from appliance.workspace.datadir import WriterLock
from tests.support.workspaces import Filled


@pytest.mark.parametrize("suffixes", [("",), ("", "-wal", "-shm")])
def test_removed_store_is_copied_with_its_log(tmp_path: Path, suffixes: Sequence[str]) -> None:
    datadir = Filled(tmp_path).datadir
    database = datadir.database("hub")
    with WriterLock(datadir, "test"), closing(open_connection(database, "FULL")) as connection:
        connection.execute("INSERT INTO meta VALUES ('only', 'in the log')")
        assert removed_files.find(datadir) == {}
        for suffix in suffixes:
            database.with_name(f"{database.name}{suffix}").unlink()
        with pytest.raises(removed_files.StoreRemoved) as refused:
            removed_files.check(datadir, ["inbox"])
        assert "agentlipd down --accept-loss hub;" in str(refused.value.hint)
        removed_files.check(datadir, ["hub"])
        removed = removed_files.find(datadir)
        copy = removed_files.copy(datadir, removed, tmp_path / "copy").database("hub")
        with closing(sqlite3.connect(copy)) as copied:
            assert copied.execute("SELECT value FROM meta WHERE key = 'only'").fetchall()


def test_removed_log_alone_is_written_back_at_the_end(tmp_path: Path) -> None:
    datadir = Filled(tmp_path).datadir
    database = datadir.database("hub")
    with WriterLock(datadir, "test"):
        with closing(open_connection(database, "FULL")) as connection:
            connection.execute("INSERT INTO meta VALUES ('only', 'in the log')")
            database.with_name(f"{database.name}-wal").unlink()
            assert removed_files.find(datadir) == {}
        with closing(sqlite3.connect(database)) as after:
            assert after.execute("SELECT value FROM meta WHERE key = 'only'").fetchall()
