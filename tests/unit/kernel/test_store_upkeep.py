"""What a store keeps up beside its work: its connections, its log; and what may fail of it."""

import sqlite3

from tests.unit.kernel.test_store import insert, open_store, values

__all__ = ["open_store"]  # the fixture


PRAGMAS = {"journal_mode": "wal", "foreign_keys": 1, "busy_timeout": 5000, "synchronous": 2}


def test_every_connection_has_the_pragmas(open_store):
    def of_writer(tx):
        return {name: tx.execute(f"PRAGMA {name}").fetchone()[0] for name in PRAGMAS}

    def of_reader(reader):
        return {name: reader.execute(f"PRAGMA {name}").fetchone()[0] for name in PRAGMAS}

    store = open_store()
    assert store.write(of_writer) == PRAGMAS
    assert store.read(of_reader) == PRAGMAS


def test_failed_checkpoint_is_repeated_while_writes_go_on(open_store, monkeypatch):
    monkeypatch.setattr("appliance.kernel.store.CHECKPOINT_JOBS", 10)
    store = open_store()

    def broken(reader):
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorname, error.sqlite_errorcode = "SQLITE_IOERR_WRITE", 778
        raise error

    with monkeypatch.context() as patched:
        patched.setattr("appliance.kernel.store.move_wal", broken)
        for _ in range(3):
            store.write_many([(insert, ("v" * 1000,))] * 100)
            assert store.checkpoint() is False
    assert len(store.read(values)) == 300
    grown = store.facts()["wal_bytes"]
    assert grown > 300_000, "the log only grows meanwhile, which the doctor reports"
    store.write_many([(insert, ("v",))] * 10)
    assert store.checkpoint() is True
    store.write_many([(insert, ("v" * 1000,))] * 50)
    assert store.facts()["wal_bytes"] <= grown + 50_000, "it is overwritten from its start"
    assert len(store.read(values)) == 360
