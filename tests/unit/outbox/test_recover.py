"""A damaged outbox is found at the start; a recovery saves every readable send."""

import io
import shutil
import sqlite3
from contextlib import closing

import pytest

from appliance.kernel.log import Log
from appliance.kernel.store_files import suspect_marker
from appliance.outbox import states, wire, writes
from appliance.outbox.recover import CLIENT_ID, LOST
from appliance.outbox.rows import SendRow
from appliance.recovery.pages import TABLE_LEAF
from appliance.workspace import schema
from appliance.workspace.datadir import DataDir
from appliance.workspace.integrity import find_damage
from appliance.workspace.schema import StoreDamaged
from tests.support import damage
from tests.support.clock import FakeClock
from tests.support.damage import recovered
from tests.support.outbox import OutboxFixture

SENDS = 400
PAGE_BYTES = 4096
LOG = Log(io.BytesIO())

STATES = sorted(set(states.SEND.transitions.values()))


def key(number):
    return f"k{number:03}-{'long-' * 8}"


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    """A workspace whose outbox holds sends in every state, to be copied."""
    datadir = DataDir(tmp_path_factory.mktemp("sent"))
    schema.create_workspace(datadir, clock=FakeClock(), log=LOG)
    outbox = OutboxFixture(datadir.database("outbox"))
    outbox.service.send_many(
        [wire.Send("#a", f"text {n} " * 9, client_message_id=key(n)) for n in range(SENDS)]
    )
    for number in range(0, SENDS, 3):
        outbox.set(key(number), STATES[number % 5])
    outbox.store.close()
    return datadir.dir


@pytest.fixture
def datadir(sent, tmp_path):
    shutil.copytree(sent, tmp_path / ".agentlip")
    return DataDir(tmp_path)


def pages_of(database, name):
    """The leaves of a table or an index."""
    leaves = damage.leaves_of(database, name)
    assert len(leaves) > 3, "the file is too small to be damaged in part"
    return leaves


def spoil(database, pages):
    for page in pages:
        damage.overwrite(database, page)


def is_refused(datadir):
    return bool(find_damage(datadir, "outbox"))


def spoil_leaf(database):
    spoil(database, pages_of(database, "outbox")[3:5])


def spoil_last_leaf(database):
    spoil(database, pages_of(database, "outbox")[-1:])


def spoil_index_of_ids(database):
    spoil(database, pages_of(database, "sqlite_autoindex_outbox_2")[1:2])


def spoil_both(database):
    leaf = pages_of(database, "outbox")[2:3]
    spoil(database, leaf + pages_of(database, "sqlite_autoindex_outbox_2")[2:3])


def spoil_index(database):
    spoil(database, pages_of(database, "sqlite_autoindex_outbox_1")[:1])


def spoil_root(database):
    with closing(sqlite3.connect(database)) as connection:
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'outbox'"
        ).fetchone()
    spoil(database, [root])


def spoil_header(database):
    with database.open("r+b") as file:
        file.write(b"this is no database any more")


def cut_off(database):
    with database.open("r+b") as file:
        file.truncate(database.stat().st_size * 2 // 3)


ROWS = "SELECT * FROM outbox ORDER BY rowid"


def rows(database, sql=ROWS):
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(sql).fetchall()


def spoil_page_1(database):
    spoil(database, [1])


def spoil_some_of_everything(database):
    """Three pages of the table, its root among them, and the middle of both indexes of ids."""
    spoil_leaf(database)
    spoil_index(database)
    spoil_index_of_ids(database)
    spoil_root(database)


def readable(before, database, harmed):
    """Ids of the sends that stand on pages which are still as they were."""
    content = harmed.read_bytes()
    file = damage.pages(database)
    same = {
        number
        for number in range(1, file.count + 1)
        if file.page(number)[100:] == content[(number - 1) * PAGE_BYTES + 100 : number * PAGE_BYTES]
    }
    return {
        cell.values[CLIENT_ID]
        for number in same
        if file.kind(number) == TABLE_LEAF
        for cell in file.cells(number)
        if cell.complete and len(cell.values) == len(SendRow._fields)
    } & before.keys()


# (how, at most so many ids with neither a send nor an aborted one in its place)
TABLE = [
    (spoil_leaf, 0),
    (spoil_last_leaf, 0),
    (spoil_index_of_ids, 0),
    (spoil_both, SENDS // 4),
    (spoil_index, 0),
    (spoil_root, 0),
    (spoil_header, 0),
    (spoil_page_1, 0),
    (spoil_some_of_everything, SENDS // 4),
    (cut_off, SENDS * 3 // 4),
]


def test_ids_of_lost_sends_stay_used(datadir):
    database = datadir.database("outbox")
    spoil_leaf(database)
    assert recovered(datadir, "outbox").tables["outbox"].lost
    outbox = OutboxFixture(database)
    try:
        ((lost,), *_) = outbox.rows(
            f"SELECT client_message_id FROM outbox WHERE last_error = '{LOST}'"
        )
        with pytest.raises(wire.IdReused) as refused:
            outbox.send("again", key=lost)
        assert refused.value.extra["conflict"] == "outbox_aborted_fingerprint_mismatch"
        assert outbox.send("new", key="new")[0] == 202
        for _ in range(4):
            outbox.clock.pass_seconds(40)
            outbox.round()
        assert set(outbox.statuses().values()) <= {"done", "dead", "aborted"}
    finally:
        outbox.store.close()


def test_inconsistent_index_is_found_by_the_full_check_only(datadir, monkeypatch):
    """Pages are whole; a row is missing in an index: a claim would never see that send."""
    database = datadir.database("outbox")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_schema SET sql = replace(sql, '''pending''', '''gone''')"
            " WHERE name = 'outbox_pending'"
        )
    with monkeypatch.context() as patch:
        patch.setattr("appliance.workspace.integrity.FULL_CHECK_BYTES_MAX", 1)
        assert not is_refused(datadir)
    assert is_refused(datadir)
    assert recovered(datadir, "outbox").tables["outbox"].read == SENDS
    assert not is_refused(datadir)


def test_sends_in_the_write_ahead_log_are_saved(datadir):
    """Killed: the last changes are in the write-ahead log, not in the file."""
    database = datadir.database("outbox")
    leaves = pages_of(database, "sqlite_autoindex_outbox_1")[:1]
    beside = database.with_name(database.name + "-wal")
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("UPDATE outbox SET attempts = 7")
        content, log = database.read_bytes(), beside.read_bytes()
    database.write_bytes(content)
    beside.write_bytes(log)
    spoil(database, leaves)
    assert recovered(datadir, "outbox").tables["outbox"].read == SENDS
    assert rows(database, "SELECT count(*) FROM outbox WHERE attempts = 7") == [(SENDS,)]


def test_recovery_removes_the_suspect_marker(datadir):
    database = datadir.database("outbox")
    suspect_marker(database).write_text("damaged\n")
    with pytest.raises(StoreDamaged) as refused:
        schema.create_workspace(datadir, clock=FakeClock(), log=LOG, locked=True)
    assert refused.value.hint == "agentlip doctor clear outbox"
    spoil_leaf(database)
    assert recovered(datadir, "outbox").kept_as
    assert not suspect_marker(database).exists()


def test_interrupted_recovery_starts_over(datadir, monkeypatch):
    database = datadir.database("outbox")
    spoil_leaf(database)

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("appliance.recovery.copying.Copying.run", killed)
    with pytest.raises(KeyboardInterrupt):
        recovered(datadir, "outbox")
    assert is_refused(datadir)
    monkeypatch.undo()
    assert recovered(datadir, "outbox").tables["outbox"].read > SENDS // 2


def test_inflight_sends_are_retried_after_a_recovery(datadir):
    database = datadir.database("outbox")
    spoil_index(database)
    recovered(datadir, "outbox")
    outbox = OutboxFixture(database)
    try:
        assert "inflight" not in outbox.statuses().values()
        assert outbox.store.write(writes.reset_inflight, 0, "none is left", ()) == 0
    finally:
        outbox.store.close()


def test_file_of_an_older_schema_is_recovered(datadir):
    database = datadir.database("outbox")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("ALTER TABLE outbox DROP COLUMN traceparent")
    with database.open("r+b") as file:  # one page of payloads
        file.seek(PAGE_BYTES * 40)
        file.write(b"\xff" * PAGE_BYTES)
    done = recovered(datadir, "outbox")
    assert done.kept_as is not None
    assert done.tables["outbox"].read > SENDS // 2
