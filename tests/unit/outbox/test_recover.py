"""A damaged outbox stops the start; a command saves what is readable."""

import io
import random
import shutil
import sqlite3
from contextlib import closing

import pytest

from appliance.kernel import schema
from appliance.kernel.datadir import DataDir, suspect_marker
from appliance.kernel.log import Log
from appliance.kernel.schema import StoreDamaged
from appliance.kernel.sqlite_pages import TABLE_LEAF, PageFile
from appliance.outbox import states, wire, writes
from appliance.outbox.columns import SendRow
from appliance.outbox.recover import CLIENT_ID, LOST, OutboxDamaged, recover, refuse_damaged
from appliance.outbox.settings import OutboxSettings
from tests.support.clock import FakeClock
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
    """Numbers of the pages of a table or an index, but for its root, as they stand in the file."""
    with closing(sqlite3.connect(database)) as connection:
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)
        ).fetchone()
    content = database.read_bytes()

    def below(page):
        start = (page - 1) * PAGE_BYTES
        head = content[start : start + 12]
        if head[0] not in (2, 5):
            return [page]
        cells = int.from_bytes(head[3:5])
        positions = [
            int.from_bytes(content[start + 12 + 2 * n : start + 14 + 2 * n]) for n in range(cells)
        ]
        children = [int.from_bytes(content[start + at : start + at + 4]) for at in positions]
        children.append(int.from_bytes(head[8:12]))
        return [leaf for child in children for leaf in below(child)]

    leaves = below(root)
    assert len(leaves) > 3, "the file is too small to be damaged in part"
    return leaves


def spoil(database, pages):
    with database.open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * PAGE_BYTES)
            file.write(b"\xa5" * PAGE_BYTES)


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


def empty(database):
    database.write_bytes(b"")


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
    file = page_file(database)
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


def page_file(database):
    content = database.read_bytes()
    return PageFile(lambda offset, length: content[offset : offset + length], len(content))


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
    (empty, SENDS),
]


@pytest.mark.parametrize(("harm", "lost_max"), TABLE)
def test_damaged_outbox_is_refused_and_readable_sends_are_saved(datadir, sent, harm, lost_max):
    database, settings = datadir.database("outbox"), OutboxSettings()
    before = {row[1]: row for row in rows(database)}
    harm(database)
    spoiled = database.read_bytes()
    with pytest.raises(OutboxDamaged) as refused:
        refuse_damaged(datadir, settings)
    assert (refused.value.code, refused.value.hint) == (
        "OUTBOX_DAMAGED",
        "agentlip outbox recover --yes",
    )
    assert database.read_bytes() == spoiled, "a refusal changes nothing"
    done = recover(datadir, settings, FakeClock(), LOG)
    assert database.with_name(done.kept_as).read_bytes() == spoiled
    refuse_damaged(datadir, settings)
    after = {row[1]: row for row in rows(database)}
    whole = {key for key, row in after.items() if row == before.get(key)}
    lost = {key for key, row in after.items() if row[8] == LOST}
    assert whole | lost == after.keys(), "a send was changed"
    assert (len(whole), len(lost)) == (done.sends, done.ids_lost)
    assert whole == readable(before, sent / "outbox.sqlite3", database.with_name(done.kept_as))
    assert len(before.keys() - after.keys()) <= lost_max
    assert done.is_complete == (whole == before.keys()) or harm in (cut_off, empty)
    assert [key for key in before if key in whole] == [key for key in after if key in whole]


@pytest.mark.parametrize("seed", range(12))
def test_garbage_page_loses_only_its_own_sends(datadir, sent, seed):
    """Anywhere, of any content, also what looks like a page of a tree."""
    database, dice = datadir.database("outbox"), random.Random(seed)
    before = {row[1]: row for row in rows(database)}
    file = page_file(database)
    with database.open("r+b") as damaged:
        for number in dice.sample(range(1, file.count + 1), 3):
            damaged.seek((number - 1) * PAGE_BYTES)
            damaged.write(bytes([dice.choice((2, 5, 10, 13))]) + dice.randbytes(PAGE_BYTES - 1))
    done = recover(datadir, OutboxSettings(), FakeClock(), LOG)
    after = {row[1]: row for row in rows(database)}
    kept = {key for key, row in after.items() if row == before.get(key)}
    assert kept >= readable(before, sent / "outbox.sqlite3", database.with_name(done.kept_as))
    assert len(after) + done.ids_unknown >= len(before)
    refuse_damaged(datadir, OutboxSettings())


def test_unknown_lost_ids_are_counted(datadir):
    """A page of the table and the pages of the indexes that name its rows."""
    database = datadir.database("outbox")
    spoil_both(database)
    done = recover(datadir, OutboxSettings(), FakeClock(), LOG)
    assert done.ids_unknown == SENDS - done.sends - done.ids_lost
    assert not done.is_complete


def test_ids_of_lost_sends_stay_used(datadir):
    database = datadir.database("outbox")
    spoil_leaf(database)
    assert recover(datadir, OutboxSettings(), FakeClock(), LOG).ids_lost
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


@pytest.mark.parametrize("quick", [False, True])
def test_intact_outbox_is_not_changed(datadir, quick):
    database = datadir.database("outbox")
    settings = OutboxSettings(check_bytes_max=1) if quick else OutboxSettings()
    before = rows(database)
    refuse_damaged(datadir, settings)
    assert recover(datadir, settings, FakeClock(), LOG).kept_as is None
    assert rows(database) == before
    assert list(database.parent.glob("*corrupt*")) == []


def test_inconsistent_index_is_found_by_the_full_check_only(datadir):
    """Pages are whole; a row is missing in an index: a claim would never see that send."""
    database = datadir.database("outbox")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_schema SET sql = replace(sql, '''pending''', '''gone''')"
            " WHERE name = 'outbox_pending'"
        )
    refuse_damaged(datadir, OutboxSettings(check_bytes_max=1))
    with pytest.raises(OutboxDamaged):
        refuse_damaged(datadir, OutboxSettings())
    assert recover(datadir, OutboxSettings(), FakeClock(), LOG).sends == SENDS
    refuse_damaged(datadir, OutboxSettings())


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
    assert recover(datadir, OutboxSettings(), FakeClock(), LOG).sends == SENDS
    assert rows(database, "SELECT count(*) FROM outbox WHERE attempts = 7") == [(SENDS,)]


def test_recovery_removes_the_suspect_marker(datadir):
    database = datadir.database("outbox")
    suspect_marker(database).write_text("damaged\n")
    with pytest.raises(StoreDamaged) as refused:
        schema.create_workspace(datadir, clock=FakeClock(), log=LOG, locked=True)
    assert refused.value.hint == "agentlip doctor clear outbox"
    spoil_leaf(database)
    assert recover(datadir, OutboxSettings(), FakeClock(), LOG).kept_as
    assert not suspect_marker(database).exists()


def test_interrupted_recovery_starts_over(datadir, monkeypatch):
    database = datadir.database("outbox")
    spoil_leaf(database)

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("appliance.kernel.recovery.sync_directory", killed)
    monkeypatch.setattr("appliance.kernel.recovery.copy_tables", killed)
    with pytest.raises(KeyboardInterrupt):
        recover(datadir, OutboxSettings(), FakeClock(), LOG)
    with pytest.raises(OutboxDamaged):
        refuse_damaged(datadir, OutboxSettings())
    monkeypatch.undo()
    clock = FakeClock()
    clock.pass_seconds(1)
    assert recover(datadir, OutboxSettings(), clock, LOG).sends > SENDS // 2


def test_inflight_sends_are_retried_after_a_recovery(datadir):
    database = datadir.database("outbox")
    spoil_index(database)
    recover(datadir, OutboxSettings(), FakeClock(), LOG)
    outbox = OutboxFixture(database)
    try:
        assert "inflight" not in outbox.statuses().values()
        assert outbox.store.write(writes.reset_inflight, 0, "none is left", (), True) == 0
    finally:
        outbox.store.close()


def test_file_of_an_older_schema_is_recovered(datadir):
    database = datadir.database("outbox")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("ALTER TABLE outbox DROP COLUMN principal")
    with database.open("r+b") as file:  # one page of payloads
        file.seek(PAGE_BYTES * 40)
        file.write(b"\xff" * PAGE_BYTES)
    done = recover(datadir, OutboxSettings(), FakeClock(), LOG)
    assert done.kept_as is not None
    assert done.sends > SENDS // 2
