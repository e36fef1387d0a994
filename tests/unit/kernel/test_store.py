"""The store as its callers know it: real file, real threads, real event loop."""

import io
import sqlite3
from functools import partial

import gevent
import msgspec
import pytest

from appliance.kernel.batch import BatchRunner
from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.kernel.reader import Reader, ReadTooLong
from appliance.kernel.store import Store
from appliance.kernel.store_errors import (
    QueueFull,
    StoreDetached,
    StoreFull,
    StoreSuspect,
)
from appliance.kernel.writer import StoreSettings
from tests.support.database_files import execute
from tests.support.until import gevent_until


def make_file(path):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, v TEXT NOT NULL)")
    connection.commit()
    connection.close()


@pytest.fixture
def open_store(tmp_path):
    stores = []

    def open_(path=None, runner=BatchRunner, publish=lambda items: None, **changed):
        path = path or tmp_path / "store.sqlite3"
        if not path.exists():
            make_file(path)
        changed.setdefault("free_bytes_min", 0)
        settings = msgspec.structs.replace(StoreSettings(), **changed)
        log = Log(io.BytesIO())
        stores.append(Store("test", path, settings, SystemClock(), log, publish, runner))
        return stores[-1]

    yield open_
    for store in stores:
        store.close()


def insert(tx, value):
    number = tx.execute("INSERT INTO t (v) VALUES (?)", (value,)).lastrowid
    tx.publish(number)
    return number


def values(reader):
    return [row[0] for row in reader.rows("SELECT v FROM t ORDER BY id", limit=10_000)]


class BlockedRunner(BatchRunner):
    """Holds every commit until the test lets go, on native locks."""

    gate = None

    def commit(self):
        if self.gate is not None:
            self.gate.acquire()
            self.gate.release()
        super().commit()


@pytest.fixture
def gate():
    from appliance.kernel.loop_callbacks import allocate_lock

    BlockedRunner.gate = allocate_lock()
    yield BlockedRunner.gate
    BlockedRunner.gate = None


def test_events_are_published_after_the_commit_and_before_the_reply(open_store, tmp_path):
    published = []
    path = tmp_path / "store.sqlite3"

    def publish(items):
        stored = {id_ for (id_,) in execute(path, "SELECT id FROM t")}
        published.extend((item, item in stored) for item in items)

    store = open_store(path=path, publish=publish)
    number = store.write(insert, "a")
    assert published == [(number, True)]


def test_full_queue_refuses_at_once_with_retry_after(open_store, gate, monkeypatch):
    monkeypatch.setattr("appliance.kernel.store.QUEUE_MAX", 3)
    store = open_store(runner=BlockedRunner)
    gate.acquire()
    waiting = [gevent.spawn(store.write, insert, str(n)) for n in range(3)]
    gevent_until(lambda: store.facts()["queue_jobs"] == 3)
    with pytest.raises(QueueFull) as refused:
        store.write(insert, "one too many")
    assert refused.value.retry_after > 0
    gate.release()
    gevent.joinall(waiting, raise_error=True)
    assert len(store.read(values)) == 3


def test_a_read_that_takes_too_long_is_stopped(open_store, monkeypatch):
    monkeypatch.setattr("appliance.kernel.store.READ_SECONDS_MAX", 0.05)
    store = open_store()
    endless = (
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    )
    with pytest.raises(ReadTooLong):
        store.read(lambda reader: reader.row(endless))
    assert store.read(values) == []


@pytest.mark.parametrize("fault", [sqlite3.OperationalError, LookupError])
def test_failed_call_ends_its_snapshot_while_its_error_is_in_use(open_store, tmp_path, fault):
    """The error's frames have a cursor with rows left."""
    store = open_store()
    store.write_many([(insert, ("a",)), (insert, ("b",))])

    def fail(reader):
        cursor = reader.execute("SELECT id FROM t")
        try:
            raise LookupError(cursor.fetchone())
        except LookupError:
            raise fault from None

    def fail_twice():
        calls = [(insert, ("b",)), (fail, ()), (fail, ())]
        for outcome in store.write_many(calls):
            outcome.unwrap()

    for attempt in (partial(store.read, fail), partial(store.write, fail), fail_twice):
        with pytest.raises((sqlite3.OperationalError, LookupError)) as kept:
            attempt()
        execute(tmp_path / "store.sqlite3", "INSERT INTO t (v) VALUES ('by another program')")
        number = store.write(insert, "c")
        assert store.read(Reader.row, "SELECT max(id) FROM t") == (number,), kept


def test_text_that_is_not_utf8_leaves_no_snapshot(open_store, tmp_path):
    """The read that fails on such text, before it is repeated, has a cursor with rows left."""
    store = open_store()
    store.write(insert, "a")
    add = "INSERT INTO t (v) VALUES (CAST(? AS TEXT)), ('b')"
    execute(tmp_path / "store.sqlite3", add, b"\xff")
    read = ["a", "\N{REPLACEMENT CHARACTER}", "b"]
    for _ in range(2):
        assert store.read(values) == read
        execute(tmp_path / "store.sqlite3", "INSERT INTO t (v) VALUES ('by another program')")
        store.write(insert, "c")
        read += ["by another program", "c"]
        assert store.read(values) == read


def test_damaged_file_stops_the_store_and_leaves_a_marker(open_store, tmp_path):
    path = tmp_path / "store.sqlite3"
    store = open_store(path=path)
    store.write_many([(insert, ("v" * 500,))] * 200)
    store.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        for page in range(4096, size, 4096):
            file.seek(page)
            file.write(b"\xff" * 4096)
    broken = open_store(path=path)
    with pytest.raises(StoreSuspect):
        broken.read(values)
    with pytest.raises(StoreSuspect) as refused:
        broken.write(insert, "x")
    assert refused.value.hint.endswith(f"agentlip doctor clear {broken.name}")
    assert path.with_name("store.sqlite3.suspect").exists()


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("replaced", [False, True])
def test_store_refuses_writes_while_file_is_missing(
    open_store, tmp_path, suffix, replaced, monkeypatch
):
    monkeypatch.setattr("appliance.kernel.store.READERS", 1)  # which is open after a read
    published = []
    store = open_store(publish=published.extend)
    assert store.read(values) == []
    store.write(insert, "a")
    assert not store.facts()["detached"]
    path = tmp_path / f"store.sqlite3{suffix}"
    path.rename(tmp_path / "moved")
    if replaced:
        path.write_bytes((tmp_path / "moved").read_bytes())
    with pytest.raises(StoreDetached) as refused:
        store.write(insert, "b")
    assert refused.value.details["file"] == path.name
    assert published == [1], "what is not acknowledged is not published"
    assert "a" in store.read(values), "reads go on"
    assert store.facts()["detached"]
    (tmp_path / "moved").rename(path)
    assert not store.facts()["detached"]
    assert store.write(insert, "c")


def test_low_disk_space_refuses_writes_but_not_reads(open_store):
    store = open_store(free_bytes_min=1 << 60)
    assert store.facts()["writing_paused"], "known before a write is refused"
    with pytest.raises(StoreFull) as refused:
        store.write(insert, "x")
    assert refused.value.retry_after > 0
    assert store.read(values) == []
    assert store.facts()["writing_paused"]


def test_freed_space_ends_the_pause_at_the_first_look(open_store, monkeypatch):
    store = open_store(free_bytes_min=1 << 60)
    with pytest.raises(StoreFull):
        store.write(insert, "x")
    for module in ("store", "writer"):
        monkeypatch.setattr(f"appliance.kernel.{module}.free_bytes", lambda _path: 1 << 61)
    assert not store.facts()["writing_paused"]


def test_long_write_ahead_log_is_truncated(open_store, monkeypatch):
    monkeypatch.setattr("appliance.kernel.store.CHECKPOINT_JOBS", 10)
    monkeypatch.setattr("appliance.kernel.store.WAL_BYTES_TRUNCATE", 100_000)
    store = open_store()
    store.write_many([(insert, ("v" * 1000,))] * 300)
    assert store.facts()["wal_bytes"] > 100_000
    assert store.checkpoint() is True
    assert store.facts()["wal_bytes"] == 0


def test_writes_are_refused_while_a_reader_keeps_the_log_too_long(
    open_store, tmp_path, monkeypatch
):
    monkeypatch.setattr("appliance.kernel.writer.WAL_BYTES_MAX", 50_000)
    monkeypatch.setattr("appliance.kernel.store.FULL_SECONDS", 0.01)
    store = open_store()
    store.write(insert, "first")
    reader = sqlite3.connect(tmp_path / "store.sqlite3", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM t").fetchone()
    store.write_many([(insert, ("v" * 1000,))] * 100)
    gevent_until(lambda: isinstance(store.write_many([(insert, ("x",))])[0].error, StoreFull))
    reader.execute("ROLLBACK")
    reader.close()
    gevent_until(lambda: not store.facts()["writing_paused"])
    store.write(insert, "again")
    assert store.read(values)[-1] == "again"
