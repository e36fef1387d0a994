"""The writer in a process of its own: the same promises, and what happens when it is killed."""

import io
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import gevent
import msgspec
import pytest

from appliance.kernel import store as store_module
from appliance.kernel import write_request
from appliance.kernel.clock import SystemClock
from appliance.kernel.errors import Invalid
from appliance.kernel.log import Log
from appliance.kernel.store import Store
from appliance.kernel.store_errors import StoreBusy
from appliance.kernel.writer import StoreSettings
from appliance.kernel.writerprocess import WriterProcess
from appliance.workspace.datadir import DataDir, WriterLock, read_lock
from tests.support import writer_functions
from tests.support.arenas import arenas_of
from tests.support.until import gevent_until
from tests.support.writer_functions import hold, put, refuse
from tests.unit.kernel.test_store import make_file

ROOT = Path(__file__).parents[3]
PF_EXITING = 0x4  # flag of an exiting process, in linux/sched.h


@pytest.fixture
def store(tmp_path):
    """A store whose writer is a process; its job functions are a module's."""
    path = tmp_path / "apart.sqlite3"
    make_file(path)
    settings = msgspec.structs.replace(StoreSettings(), free_bytes_min=0)
    published, restarts = [], []
    writers = WriterProcess(SystemClock(), Log(io.BytesIO()))
    store = Store(
        "apart", path, settings, SystemClock(), Log(io.BytesIO()), published.extend,
        writers=writers, restarted=lambda: restarts.append(store.read(count)),
    )  # fmt: skip
    store.published, store.restarts = published, restarts
    yield store
    store.close()
    assert writers.close(10.0)


def count(reader):
    return reader.row("SELECT count(*) FROM t")[0]


def test_writes_in_a_writer_process_are_durable_and_published_in_order(store):
    outcomes = store.write_many([(put, ("a",)), (refuse, ("b",)), (put, ("c",))])
    assert [type(outcome.error) for outcome in outcomes] == [type(None), Invalid, type(None)]
    refused = outcomes[1].error
    assert (refused.message, refused.details) == ("no b", {"value": "b"})
    assert store.published == ["a", "c"]
    writers = [gevent.spawn(lambda: [store.write(put, "x") for _ in range(25)]) for _ in range(8)]
    gevent.joinall(writers, raise_error=True)
    assert store.read(count) == 202
    assert len(store.published) == 202


def test_writer_threads_share_one_arena(store):
    store.write(put, "a")
    assert arenas_of(store._writer._process.pid) == 0


def test_lost_transaction_of_a_write_alone_takes_no_other_with_it(store):
    lose = store.begin([(writer_functions.lose, ())], alone=True)
    around = [store.begin([(put, (value,))]) for value in ("a", "b")]
    again = store.begin([(writer_functions.lose, ())], alone=True)
    assert isinstance(lose.wait()[0].error, sqlite3.OperationalError)
    assert [request.wait()[0].unwrap() for request in around] == ["a", "b"]
    assert isinstance(again.wait()[0].error, sqlite3.OperationalError)
    assert store.write_alone(put, "c") == "c"
    assert store.published == ["a", "b", "c"]
    assert store.read(count) == 3


def test_frozen_writer_ends_waits_and_refuses_writes_until_it_goes_on(store, monkeypatch):
    store.write(put, "before")
    pid = store._writers.pid
    os.kill(pid, signal.SIGSTOP)
    stat = Path(f"/proc/{pid}/stat")
    gevent_until(
        lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", 10, "it has stopped"
    )
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "STALL_SECONDS_MAX", 0.2)
        patch.setattr(write_request, "STALL_CHECK_SECONDS", 0.1)
        waiting = [gevent.spawn(store.write, put, value) for value in ("a", "b")]
        gevent.joinall(waiting)
        with pytest.raises(StoreBusy, match="has not finished a batch"):
            store.write(put, "c")
    seen = store.read(count)
    os.kill(pid, signal.SIGCONT)
    assert [str(each.exception.message) for each in waiting] == [
        "the writer has stalled; whether this was stored is unknown"
    ] * 2
    assert seen == 1
    gevent_until(lambda: store.published == ["before", "a", "b"], 10, "what waited is published")
    assert store.write(put, "d") == "d"
    assert store.read(count) == 4


def test_call_that_cannot_be_pickled_fails_alone(store):
    with pytest.raises((pickle.PicklingError, AttributeError)):
        store.write(lambda tx: None)
    with pytest.raises(RuntimeError, match="can't be pickled"):
        store.write(writer_functions.fail_strangely)
    assert store.write(put, "after") == "after"


def test_killed_writer_process_is_replaced_and_keeps_committed_writes(store):
    store.write(put, "before")
    victim = store._writer._process.pid
    waiting = gevent.spawn(store.write_many, [(hold, ("/nowhere",))])
    gevent_until(lambda: store.facts()["queue_jobs"] == 1)
    os.kill(victim, 9)
    (outcome,) = waiting.get()
    assert isinstance(outcome.error, StoreBusy)
    assert "unknown" in outcome.error.message
    gevent_until(lambda: store.facts()["writer_alive"])
    assert store._writer._process.pid != victim
    assert store.restarts == [1]
    assert store.write(put, "after") == "after"
    assert store.read(count) == 2


def test_the_child_ends_with_its_parent_and_keeps_the_lock_until_then(tmp_path):
    script = """
import gevent, io, os, signal, sys
from pathlib import Path
from appliance.kernel.clock import SystemClock
from appliance.workspace.datadir import DataDir, WriterLock
from appliance.kernel.log import Log
from appliance.kernel.store import Store
from appliance.kernel.writer import StoreSettings
from appliance.kernel.writerprocess import WriterProcess
from tests.support.writer_functions import put
datadir = DataDir(Path(sys.argv[1]))
lock = WriterLock(datadir, "test")
lock.acquire()
store = Store("apart", Path(sys.argv[2]), StoreSettings(), SystemClock(), Log(io.BytesIO()),
              writers=WriterProcess(SystemClock(), Log(io.BytesIO()), lock.descriptor))
store.write(put, "x")
print(store._writer._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    path = tmp_path / "apart.sqlite3"
    make_file(path)
    datadir = DataDir(tmp_path)
    datadir.dir.mkdir()
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), str(path)],
        stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    child = int(run.stdout)
    lock = WriterLock(datadir, "next")
    gevent_until(lambda: not read_lock(datadir).held)
    lock.acquire()
    assert not is_running(child)
    lock.release()


def is_running(pid):
    """Whether the process still runs. The kernel closes the files of an exiting one first."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return False
    return state not in "ZX" and not int(fields[5]) & PF_EXITING
