"""Cached results are what a new read would return, whoever commits."""

import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.kernel import result_cache
from appliance.kernel.result_cache import ResultCache
from appliance.kernel.store_files import StoreFiles
from tests.support.database_files import overwrite


class Log:
    """A database with one table, its writer, and how often the table was read."""

    def __init__(self, directory):
        self.path = directory / "log.db"
        self.writer = sqlite3.connect(self.path, isolation_level=None)
        self.writer.execute("PRAGMA journal_mode = WAL")
        self.writer.execute("CREATE TABLE log (line TEXT)")
        files = StoreFiles(self.path)
        files.note_log()
        self.cache = ResultCache(files)
        self.reads = 0

    def close(self):
        self.writer.close()

    def commit(self):
        self.writer.execute("INSERT INTO log VALUES ('x')")

    def tear(self):
        """Do what a writer does that stops while it writes the header."""
        overwrite(self.path.with_name("log.db-shm"), 8, b"\xff")

    def count(self):
        self.reads += 1
        return b"%d" % self.writer.execute("SELECT count(*) FROM log").fetchone()


@pytest.fixture
def log(tmp_path):
    log = Log(tmp_path)
    yield log
    log.close()


STEPS = st.sampled_from(
    ["get", "get", "commit", "roll back", "move the log", "tear", "commit meanwhile"]
)


@settings(max_examples=50)
@given(st.lists(STEPS, max_size=30))
def test_results_are_equal_to_new_reads(tmp_path_factory, steps):
    log = Log(tmp_path_factory.mktemp("log"))
    lines, results, expected = 0, [], []

    def read_and_commit():
        count = log.count()
        log.commit()
        log.cache.get("other", log.count)  # by another greenlet, which notices the commit
        return count

    for step in steps:
        if step == "get":
            results.append(log.cache.get("count", log.count))
            expected.append(b"%d" % lines)
        elif step == "commit":
            log.commit()
            lines += 1
        elif step == "roll back":
            log.writer.execute("BEGIN IMMEDIATE")
            log.commit()
            log.writer.execute("ROLLBACK")
        elif step == "move the log":
            log.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        elif step == "tear":
            log.tear()
        else:  # a result read before the commit is not kept
            log.cache.get("count", read_and_commit)
            lines = int(log.count())
    log.close()
    assert results == expected


def test_equal_reads_without_commits_read_once(log):
    assert [log.cache.get("count", log.count) for _ in range(5)] == [b"0"] * 5
    assert log.reads == 1
    log.commit()
    assert log.cache.get("count", log.count) == b"1"


def test_long_results_are_not_kept_and_a_full_cache_starts_again(log, monkeypatch):
    monkeypatch.setattr(result_cache, "CACHE_BYTES_MAX", 10 + 2 * result_cache.ENTRY_BYTES)
    monkeypatch.setattr(result_cache, "RESULT_BYTES_MAX", 6)
    made = []

    def read(key, size):
        def make():
            made.append(key)
            return bytes(size)

        assert len(log.cache.get(key, make)) == size

    for key, size in (("a", 6), ("a", 6), ("long", 7), ("long", 7), ("b", 5), ("a", 6), ("a", 6)):
        read(key, size)
    assert made == ["a", "long", "long", "b", "a"]


def test_small_results_count_with_their_keys(log):
    log.cache.get("first", log.count)
    for number in range(2000):
        log.cache.get(("longer" * 20, number), lambda: b"")
    log.cache.get("first", log.count)
    assert log.reads == 2


def test_result_that_two_read_at_the_same_time_counts_once(log, monkeypatch):
    monkeypatch.setattr(result_cache, "CACHE_BYTES_MAX", 2 * result_cache.ENTRY_BYTES + 2)
    log.cache.get("b", log.count)
    log.cache.get("a", lambda: log.cache.get("a", lambda: b"a"))  # by another greenlet
    log.cache.get("b", log.count)
    assert log.reads == 1


def test_failed_reads_raise_and_are_not_kept(log):
    with pytest.raises(LookupError):
        log.cache.get("count", lambda: {}["x"])
    assert log.cache.get("count", log.count) == b"0"


def test_every_read_is_new_until_a_reader_repaired_a_torn_header(log):
    """Only readers wait for a stopped writer, or repair what a killed writer left."""
    log.cache.get("key", lambda: b"")
    log.tear()
    assert [log.cache.get("key", value) for value in (lambda: b"a", lambda: b"b")] == [b"a", b"b"]
    log.count()
    assert [log.cache.get("key", value) for value in (lambda: b"a", lambda: b"b")] == [b"a", b"a"]


def test_every_read_is_new_without_an_index_in_use_at_its_path(log, tmp_path):
    index = log.path.with_name("log.db-shm")
    index.rename(index.with_name("elsewhere"))
    index.write_bytes(bytes(96))
    for cache in (log.cache, ResultCache(StoreFiles(tmp_path / "absent.db"))):
        assert [cache.get("key", value) for value in (lambda: b"a", lambda: b"b")] == [b"a", b"b"]


@pytest.mark.parametrize("header", [b"", bytes(3), bytes(95)])
def test_every_read_is_new_while_the_index_has_no_header(log, monkeypatch, header):
    monkeypatch.setattr(result_cache.os, "pread", lambda *_: header)
    assert [log.cache.get("key", value) for value in (lambda: b"a", lambda: b"b")] == [b"a", b"b"]
