"""A damaged outbox is found at the start; a recovery saves every readable send."""

import io
import shutil
import sqlite3
from contextlib import closing

import pytest

from appliance.kernel.log import Log
from appliance.kernel.store_files import suspect_marker
from appliance.outbox import states, wire
from appliance.workspace import schema
from appliance.workspace.datadir import DataDir
from appliance.workspace.schema import StoreDamaged
from tests.support import damage
from tests.support.clock import FakeClock
from tests.support.damage import recovered
from tests.support.database_files import execute
from tests.support.outbox import OutboxFixture

SENDS = 400
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
    damaged = {}
    schema.create_workspace(datadir, clock=FakeClock(), log=LOG, locked=True, damaged=damaged)
    return bool(damaged)


def spoil_leaf(database):
    spoil(database, pages_of(database, "outbox")[3:5])


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
        patch.setattr("appliance.workspace.upgrade.FULL_CHECK_BYTES_MAX", 1)
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
    changed = "SELECT count(*) FROM outbox WHERE attempts = 7"
    assert execute(database, changed) == [(SENDS,)]


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
