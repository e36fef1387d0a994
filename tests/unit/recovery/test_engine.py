"""`recover` says what is lost: whatever happened to a file, and in every store."""

import random
import shutil

import pytest

from appliance.outbox.recover import LOST
from appliance.recovery.cli import lines_of
from appliance.recovery.engine import NothingRecovered
from appliance.workspace import swap
from appliance.workspace.datadir import DataDir
from appliance.workspace.integrity import is_damaged
from tests.doctor.conversation import content, facts
from tests.support import damage
from tests.support.damage import STORES, leaf_of, recovered
from tests.support.database_files import execute
from tests.support.outbox import OutboxFixture

# Tables whose rows are also made from other tables, or stand for a lost row.
REPLACED = {"outbox": {"outbox"}, "broker": {"client_message_dedupe"}}


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("filled")
    damage.fill(folder)
    return folder


@pytest.fixture
def datadir(filled, tmp_path):
    shutil.copytree(filled, tmp_path / "ws")
    return DataDir(tmp_path / "ws")


def check(report, before, after):
    """Nothing is missing from the new file that the report does not mention, and nothing is new."""
    for table, rows in before.items():
        missing = len({row[-1] for row in rows} and rows - after[table])
        counted = report.tables[table]
        assert not missing or not counted.complete or counted.rebuilt, table
        if table not in REPLACED.get(report.store, ()):
            assert after[table] <= rows or counted.rebuilt, table
            assert counted.lost <= missing or counted.rebuilt, table
            assert counted.lost == missing or not counted.counted or counted.rebuilt, table
    if any(before[table] - after[table] for table in before if not report.tables[table].rebuilt):
        assert not report.complete


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(
    "harm", [damage.cut_in_the_middle, damage.first_page_zeroed, damage.other_page_size]
)
def test_losses_are_reported(datadir, store, harm):
    database = datadir.database(store)
    before, known = content(database), facts(database)
    harm(database)
    report = recovered(datadir, store)
    after = content(database)
    check(report, before, after)
    assert not is_damaged(database, quick=False)
    if harm is not damage.cut_in_the_middle:
        assert after == before
        assert report.complete
        assert facts(database).items() >= {k: known[k] for k in known if "_id_" not in k}.items()
    else:
        assert not report.complete
        assert not any(counted.complete and counted.read < len(before[t]) for t, counted in
                       report.tables.items() if not counted.rebuilt)  # fmt: skip


@pytest.mark.parametrize(
    ("store", "state", "size"), [("hub", "missing", None), ("outbox", "empty", 0)]
)
def test_store_without_a_file_is_not_intact(datadir, store, state, size):
    database = datadir.database(store)
    database.unlink()
    if size is not None:
        database.touch()
    with pytest.raises(NothingRecovered, match=f"{store}: .* is {state}") as refused:
        recovered(datadir, store)
    assert f"--accept-loss {store}" in refused.value.hint
    assert database.exists() == (size == 0)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("harm", [damage.one_page, damage.random_bytes])
def test_file_without_a_readable_row_is_not_replaced(datadir, store, harm):
    database = datadir.database(store)
    harm(database)
    spoiled = database.read_bytes()
    with pytest.raises(NothingRecovered):
        recovered(datadir, store)
    assert database.read_bytes() == spoiled
    assert not swap.is_pending(datadir)
    assert not list(datadir.backups.iterdir())


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("seed", range(2))
def test_garbage_pages_lose_only_their_own_rows(datadir, store, seed):
    """Anywhere, of any content, also what looks like a page of a tree."""
    database, dice = datadir.database(store), random.Random(seed)
    before = content(database)
    for page in dice.sample(range(2, damage.pages(database).count + 1), 4):
        kind = bytes([dice.choice((0, 2, 5, 10, 13))])
        damage.overwrite(database, page, kind + dice.randbytes(damage.PAGE_BYTES - 1))
    if is_damaged(database, quick=False):
        check(recovered(datadir, store), before, content(database))
    assert not is_damaged(database, quick=False)


# -- ids of the outbox ---------------------------------------------------------------------------


def ids(database, table="outbox"):
    return {id_ for (id_,) in execute(database, f"SELECT client_message_id FROM {table}")}


def test_ids_are_read_from_the_log_when_table_and_index_are_lost(datadir):
    database = datadir.database("outbox")
    before = ids(database)
    for name in ("outbox", "sqlite_autoindex_outbox_2"):
        for page in damage.leaves_of(database, name):
            damage.overwrite(database, page)
    report = recovered(datadir, "outbox")
    assert ids(database) == before
    assert not report.complete
    assert any("300 sends are lost" in note for note in report.notes)
    outbox = OutboxFixture(database)
    try:
        assert set(outbox.statuses().values()) == {"aborted"}
        query = "SELECT DISTINCT destination_ref, last_error FROM outbox"
        assert outbox.rows(query) == [("a", LOST)]
    finally:
        outbox.store.close()


def test_send_that_does_not_match_its_fingerprint_is_reported_and_not_delivered(datadir):
    database = datadir.database("outbox")
    execute(
        database,
        "UPDATE outbox SET status = 'pending', delivered_at = NULL,"
        " payload = CAST('other' AS BLOB) WHERE rowid = 7",
    )
    leaf_of("log")(database)
    report = recovered(datadir, "outbox")
    assert any("1 sends do not match their fingerprint: out_" in note for note in report.notes)
    query = "SELECT status, payload FROM outbox WHERE rowid = 7"
    assert execute(database, query) == [("dead", b"other")]


# -- the broker ----------------------------------------------------------------------------------


def test_accepted_ids_are_kept_without_their_dedupe_rows(datadir):
    database = datadir.database("broker")
    table = "client_message_dedupe"
    before, rows = ids(database, table), content(database)[table]
    for page in damage.leaves_of(database, table):
        damage.overwrite(database, page)
    report = recovered(datadir, "broker")
    assert ids(database, table) == before
    assert content(database)[table] == rows, "the messages have everything that was in them"
    assert report.tables[table].rebuilt == 300 - report.tables[table].read

    for name in (table, "topic_message"):
        for page in damage.leaves_of(database, name):
            damage.overwrite(database, page)
    report = recovered(datadir, "broker")
    assert ids(database, table) == before
    assert any("ids are kept without their messages" in note for note in report.notes)


@pytest.mark.parametrize(("store", "table"), [("hub", "topics"), ("outbox", "outbox")])
def test_store_without_one_of_its_tables_is_not_intact(datadir, store, table):
    database = datadir.database(store)
    before = content(database)
    execute(database, f"DROP TABLE {table}")
    report = recovered(datadir, store)
    assert not report.intact
    assert report.tables[table].rebuilt + report.tables[table].lost == len(before[table])


def test_table_ends_with_what_was_lost_in_all(datadir):
    database = datadir.database("outbox")
    for page in damage.leaves_of(database, "outbox")[:2]:
        damage.overwrite(database, page)
    report = recovered(datadir, "outbox")
    lost = report.tables["outbox"].lost
    assert lost > 0
    (total,) = [line.split() for line in lines_of(report) if line.startswith("total")]
    read = sum(table.read for table in report.tables.values())
    assert total == ["total", str(read), "0", str(lost)]
    report.tables["log"].counted = False
    (total,) = [line for line in lines_of(report) if line.startswith("total")]
    assert total.endswith(f"at least {lost}")
