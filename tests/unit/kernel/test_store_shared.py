"""A store that other programs write too, beside a process that knows nothing of the appliance."""

import io
import sqlite3
from contextlib import closing

import pytest

from appliance.kernel import store_declaration
from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.kernel.store import CHECKPOINT_JOBS, Store
from appliance.kernel.store_errors import StoreBusy, StoreDetached
from appliance.kernel.writer import StoreSettings
from appliance.workspace.datadir import DataDir
from tests.support.shared_board import DECLARED, OtherProgram, notices, put_up


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setitem(store_declaration.DECLARATIONS, "board", DECLARED)
    return DataDir(tmp_path).database("board")


@pytest.fixture
def store(path):
    settings = StoreSettings(free_bytes_min=0)
    store = Store("board", path, settings, SystemClock(), Log(io.BytesIO()))
    yield store
    store.close()


def test_the_log_is_not_emptied_for_other_programs(store, path):
    store.write_many([(put_up, ("own",))] * (CHECKPOINT_JOBS + 1))
    assert store.checkpoint() is False
    assert store.write(lambda tx: tx.execute("PRAGMA wal_autocheckpoint").fetchone()) == (1000,)
    other = OtherProgram(path)
    other.write("foreign")
    log = store.facts()["wal_bytes"]
    store.close()
    assert store.facts()["wal_bytes"] == log, "the other program goes on with it"
    other.process.communicate()


def test_write_is_refused_while_another_program_replaces_the_tables(store, path):
    store.write(put_up, "first")
    with closing(sqlite3.connect(path)) as other:
        other.execute("ALTER TABLE notice RENAME TO away")
    with pytest.raises(StoreBusy):
        store.write(put_up, "second")
    with closing(sqlite3.connect(path)) as other:
        other.execute("DROP TABLE IF EXISTS notice")
        other.execute("ALTER TABLE away RENAME TO notice")
    store.write(put_up, "third")


def test_a_write_into_a_file_that_is_removed_meanwhile_is_refused(store, path):
    def removing(tx):
        put_up(tx, "lost")
        path.unlink()

    store.write(put_up, "first")
    with pytest.raises(StoreDetached) as refused:
        store.write(removing)
    assert refused.value.details["file"] == path.name


def test_write_into_a_file_removed_once_runs_again_in_the_next_file(store, path):
    def removing(tx):
        put_up(tx, "kept")
        if tx.execute("SELECT count(*) FROM notice").fetchone() == (2,):
            path.unlink()

    store.write(put_up, "first")
    store.write(removing)
    assert store.read(notices) == ["kept"]
