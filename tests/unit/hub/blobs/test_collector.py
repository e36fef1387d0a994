"""The collector: what keeps a file, when a file goes, and what stops the collector."""

import sqlite3
from contextlib import closing

import pytest

from appliance.hub.blobs import writes
from appliance.kernel.store_declaration import DECLARATIONS
from appliance.workspace import named_files
from appliance.workspace.named_files import named_in
from tests.unit.hub.blobs.conftest import ref_of

CONTENT = b"a long log"
REF = ref_of(CONTENT)
COLUMNS = [
    (store, table, column)
    for store, declared in DECLARATIONS.items()
    for table, columns in declared.texts.items()
    for column in columns
]
EMPTY = {"TEXT": "", "INTEGER": 0, "BLOB": b"", "REAL": 0.0}


def insert(env, store, table, column, text):
    """A row whose other columns are empty."""
    with closing(sqlite3.connect(env.datadir.database(store), isolation_level=None)) as file:
        file.execute("PRAGMA ignore_check_constraints = ON")
        row = {}
        for _, name, type_, needed, default, key in file.execute(f"PRAGMA table_info({table})"):
            if name == column:
                row[name] = text.encode() if type_ == "BLOB" else text
            elif (key and type_ != "INTEGER") or (needed and default is None and not key):
                row[name] = EMPTY[type_]
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        file.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(row.values()))


@pytest.mark.parametrize(("store", "table", "column"), COLUMNS)
def test_text_in_any_store_keeps_a_file(env, store, table, column):
    env.put(CONTENT)
    text = REF.replace(":", "-") if column == "payload_ref" else f'{{"log": "{REF}."}}'
    insert(env, store, table, column, text)
    assert env.collect(days=8) == 0
    assert env.read(REF) == CONTENT


def test_declared_columns_exist_in_their_stores(env):
    assert {store for store, _, _ in COLUMNS} >= {"hub", "courier", "outbox", "bus", "broker"}
    for store, table, column in COLUMNS:
        with closing(sqlite3.connect(env.datadir.database(store))) as file:
            file.execute(f'SELECT "{column}" FROM {table}')


def test_unnamed_file_goes_after_the_grace_time(env):
    env.put(CONTENT)
    assert env.collect(days=6.9) == 0
    assert env.read(REF) == CONTENT
    assert env.collect(days=0.2) == 1
    assert not env.file_of(REF).exists()
    assert env.rows("SELECT * FROM x_blobs") == env.rows("SELECT * FROM x_blob_puts") == []


def test_another_put_begins_the_grace_time_again(env):
    env.put(CONTENT)
    env.clock.pass_seconds(6 * 86_400)
    env.put(CONTENT, env.bob)
    assert env.collect(days=6) == 0
    assert env.collect(days=2) == 1


def test_named_file_begins_the_grace_time_again(env):
    env.put(CONTENT)
    message_id = env.say(f"see {REF}", env.bob)
    assert env.collect(days=8) == 0
    env.delete(message_id, env.bob)
    assert env.collect(days=6) == 0
    assert env.collect(days=2) == 1


def test_old_text_in_the_log_keeps_nothing(env):
    env.put(CONTENT)
    env.delete(env.say(f"see {REF}", env.bob), env.bob)
    assert env.rows("SELECT 1 FROM events WHERE data_json LIKE ?", f"%{REF}%")
    assert env.collect(days=8) == 1


def test_deleted_message_takes_its_authors_file_at_once(env):
    env.put(CONTENT)
    env.delete(env.say(f"see {REF}"))
    assert env.collect() == 1
    assert not env.file_of(REF).exists()


def test_deleted_message_takes_no_file_that_is_named_elsewhere(env):
    env.put(CONTENT)
    env.say(f"also {REF}")
    env.delete(env.say(f"see {REF}"))
    assert env.collect() == 0


def test_deleted_message_takes_no_file_that_somebody_else_put(env):
    env.put(CONTENT)
    env.delete(env.say(f"see {REF}", env.bob), env.bob)
    env.put(b"shared")
    env.put(b"shared", env.bob)
    env.delete(env.say(f"see {ref_of(b'shared')}"))
    assert env.collect() == 0


def test_put_during_a_scan_wins(env):
    env.put(CONTENT)
    env.clock.pass_seconds(8 * 86_400)
    scan = env.collector._begin()
    env.clock.pass_seconds(1)
    env.put(CONTENT, env.bob)
    assert env.collector._continue(scan) == 0
    assert env.read(REF) == CONTENT


def test_text_that_is_written_during_a_scan_counts(env, monkeypatch):
    monkeypatch.setattr(named_files, "SLICE_ROWS", 1)
    old = env.say("to be edited")
    env.say("other")
    for content in (b"posted", b"edited"):
        env.put(content)
    env.clock.pass_seconds(8 * 86_400)
    scan = env.collector._begin()
    while scan.advance():
        pass
    env.say(f"see {ref_of(b'posted')}")
    edit = f"see {ref_of(b'edited')}"
    env.hub.patch_message(old, edit_of(edit), env.ann)
    assert env.collector._continue(scan) == 0
    assert env.read(ref_of(b"edited")) == b"edited"


def edit_of(text):
    from appliance.hub import wire

    return wire.EditMessage(text)


def test_scan_reads_long_tables_in_slices_over_several_rounds(env, monkeypatch):
    monkeypatch.setattr(named_files, "SLICE_ROWS", 2)
    monkeypatch.setattr("appliance.hub.blobs.collector.SLICES_MAX", 3)
    for number in range(20):
        env.say(f"message {number}")
    for content in (CONTENT, b"named"):
        env.put(content)
    env.say(f"see {ref_of(b'named')}")
    env.clock.pass_seconds(8 * 86_400)
    assert env.collector.run(0) == 0
    assert env.collector._scan is not None
    assert env.collect() == 1
    assert env.read(ref_of(b"named")) == b"named"


def test_damaged_store_stops_the_collector(env):
    env.put(CONTENT)
    env.datadir.database("courier").write_bytes(b"garbage" * 1000)
    with pytest.raises(sqlite3.DatabaseError):
        env.collect(days=8)
    assert env.read(REF) == CONTENT


def test_scan_rests_between_two_scans(env, monkeypatch):
    begun = []
    monkeypatch.setattr(
        "appliance.hub.blobs.collector.Scan",
        lambda *args: begun.append(1) or named_files.Scan(*args),
    )
    env.put(CONTENT)
    env.say(f"see {REF}")
    env.collect(days=8)
    env.put(b"two")
    for _ in range(3):
        env.collect()
    assert len(begun) == 1


def test_names_end_at_other_digits():
    digits = "0123456789abcdef" * 4
    assert named_in(f"sha256:{digits}, sha256-{digits}.".encode()) == {digits}
    assert named_in(f"sha256:{digits}0 sha256:{digits[:-1]} SHA256:{digits}".encode()) == set()


def test_settle_counts_only_what_it_removed(env):
    digest = env.put(CONTENT).blob.ref[7:]
    assert env.store.write(writes.settle, {digest: 1, "0" * 64: 1}, set()) == 0
