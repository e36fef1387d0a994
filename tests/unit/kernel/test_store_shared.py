"""A store that other programs write too, beside a process that knows nothing of the appliance."""

import io
import shutil

import pytest

from appliance.kernel import store_declaration
from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.kernel.store import CHECKPOINT_JOBS, Store
from appliance.kernel.store_errors import StoreAbsent, StoreBusy, StoreDetached
from appliance.kernel.writer import StoreSettings
from appliance.workspace.datadir import DataDir
from tests.support.board import DECLARED, OtherProgram, notices, put_up


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


@pytest.fixture
def start(path):
    programs = []

    def start_():
        programs.append(OtherProgram(path))
        return programs[-1]

    yield start_
    for program in programs:
        program.process.communicate()


def test_a_missing_file_is_not_an_error_and_is_not_made_by_a_read(store, tmp_path):
    with pytest.raises(StoreAbsent):
        store.read(notices)
    facts = store.facts()
    assert {facts["writing_paused"], facts["detached"], facts["suspect"]} == {False}
    assert store.close()
    assert list(tmp_path.iterdir()) == []


def test_both_programs_write_the_file_that_one_of_them_made(store, start, tmp_path):
    store.write(put_up, "own")
    assert (tmp_path / ".board" / "notices.db").is_file()
    assert start().write("foreign") == store.read(notices) == ["own", "foreign"]
    with pytest.raises(StoreBusy):
        store.read(put_up, "by a reader")
    assert store.read(notices) == ["own", "foreign"]


@pytest.mark.parametrize("made_by_other", [False, True])
def test_a_file_that_is_made_later_or_again_is_adopted(store, start, path, made_by_other):
    for _ in range(2):
        with pytest.raises(StoreAbsent):
            store.read(notices)
        expected = start().write("foreign") if made_by_other else []
        store.write(put_up, "own")
        assert store.read(notices) == [*expected, "own"]
        shutil.rmtree(path.parent)


def test_foreign_lock_delays_writes_and_no_reads(store, start):
    store.write(put_up, "own")
    store.write(lambda tx: tx.execute("PRAGMA busy_timeout = 50").fetchone())
    program = start()
    program.run("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy):
        store.write(put_up, "late")
    assert store.read(notices) == ["own"]
    program.run("COMMIT")
    store.write(put_up, "late")
    assert store.read(notices) == ["own", "late"]


def test_the_log_is_not_emptied_for_other_programs(store, start):
    store.write_many([(put_up, ("own",))] * (CHECKPOINT_JOBS + 1))
    assert store.checkpoint() is False
    assert store.write(lambda tx: tx.execute("PRAGMA wal_autocheckpoint").fetchone()) == (1000,)
    start().write("foreign")
    log = store.wal_bytes()
    store.close()
    assert store.wal_bytes() == log, "the other program goes on with it"


def test_a_write_into_a_file_that_is_removed_meanwhile_is_refused(store, path):
    def removing(tx):
        put_up(tx, "lost")
        path.unlink()

    store.write(put_up, "first")
    with pytest.raises(StoreDetached) as refused:
        store.write(removing)
    assert refused.value.details["file"] == path.name
