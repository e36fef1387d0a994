"""Recovery copies the readable rows of a damaged file of any store, and counts lost rows."""

import io
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from appliance.kernel import schema
from appliance.kernel.datadir import DataDir
from appliance.kernel.log import Log
from appliance.kernel.recovery import recover_file
from appliance.kernel.sqlite_pages import TABLE_LEAF, PageFile
from tests.support.clock import FakeClock

LOG = Log(io.BytesIO())
PAGE_BYTES = 4096
ROWS = 300


def execute(database: Path, *statements: str) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def counted(number: int) -> str:
    return f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {number})"


FILL = {
    "inbox": (
        f"{counted(ROWS)} INSERT INTO inbox (id, client_message_id, mesh, topic, sender_pubkey,"
        " sender_name, body, received_at, destination_kind, destination_ref, priority, created_at,"
        " own) SELECT 'in_' || i, 'c' || i, 'lab', 't', 'k', 'n', printf('%.*c', i * 40, 'x'), i,"
        " 'topic', 't', 'next', 'now', 0 FROM n",
        "DELETE FROM inbox WHERE number % 7 = 0",
        "INSERT INTO topics VALUES ('lab', 't', 1)",
        "UPDATE sqlite_sequence SET seq = 5000 WHERE name = 'inbox'",
    ),
    "broker": (
        "INSERT INTO mesh VALUES ('m', 'lab', 'permanent', 7, 30, 'allow_concurrent', 1)",
        f"{counted(ROWS)} INSERT INTO client_message_dedupe SELECT 'm', 'c' || i, 'bm_' || i,"
        " 'h' || i, zeroblob(32), 'topic', 't', i, NULL, 1, NULL FROM n",
        f"{counted(ROWS)} INSERT INTO topic_message SELECT 'bm_' || i, 'm', 'c' || i, 't', 'k',"
        " 'n', 'next', NULL, printf('%.*c', i * 40, 'y'), NULL, i, 0 FROM n",
        f"{counted(ROWS)} INSERT INTO delivery_queue (mesh_id, broker_message_id, recipient, kind,"
        " rank, ready_ms, created_ms) SELECT 'm', 'bm_' || i, 'r', 'topic', 1, i, i FROM n",
    ),
}


@pytest.fixture(params=sorted(FILL))
def store(request, tmp_path):
    """A store's name and a workspace in which it is filled."""
    datadir = DataDir(tmp_path)
    schema.create_workspace(datadir, clock=FakeClock(), log=LOG)
    execute(datadir.database(request.param), *FILL[request.param])
    return request.param, datadir


def content(database: Path) -> dict[str, set[tuple]]:
    """All rows of all tables, numbers of rows included where there are any."""
    with closing(sqlite3.connect(database)) as connection:
        tables = connection.execute(
            "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
            " AND name NOT IN ('x_migrations', 'meta', 'sqlite_schema')"
        ).fetchall()
        return {
            name: set(connection.execute(
                f'SELECT {"" if without else "rowid, "}* FROM "{name}"').fetchall())
            for name, without in tables
        }  # fmt: skip


def recover(datadir: DataDir, name: str):
    return recover_file(datadir, name, FakeClock(), LOG)


def test_an_undamaged_file_is_copied_row_by_row(store):
    name, datadir = store
    before = content(datadir.database(name))
    _, report = recover(datadir, name)
    assert content(datadir.database(name)) == before
    assert sum(done.rows_lost for done in report.values()) == 0


@pytest.mark.parametrize("header_bytes", [16, 100, PAGE_BYTES])
def test_damaged_first_page_loses_no_rows_of_other_pages(store, header_bytes):
    name, datadir = store
    before = content(datadir.database(name))
    with datadir.database(name).open("r+b") as file:
        file.write(bytes(header_bytes))
    recover(datadir, name)
    after = content(datadir.database(name))
    for table in before.keys() - {"sqlite_sequence"}:
        if header_bytes < PAGE_BYTES or len(before[table]) == ROWS:
            assert before[table] <= after[table], table


@pytest.mark.parametrize("seed", range(8))
def test_garbage_page_loses_only_its_own_rows(store, seed):
    name, datadir = store
    database, dice = datadir.database(name), random.Random(seed)
    before = content(database)
    harmed = database.read_bytes()
    file = PageFile(lambda at, length: harmed[at : at + length], len(harmed))
    leaves = [n for n in range(2, file.count + 1) if file.kind(n) == TABLE_LEAF]
    hit = dice.choice(leaves)
    on_it = len(list(file.cells(hit)))
    with database.open("r+b") as damaged:
        damaged.seek((hit - 1) * PAGE_BYTES)
        damaged.write(dice.randbytes(PAGE_BYTES))
    recover(datadir, name)
    after = content(database)
    missing = {table: before[table] - after[table] for table in before}
    assert sum(map(len, missing.values())) <= on_it
    extra = {table: after[table] - before[table] for table in after if table != "sqlite_sequence"}
    assert not any(extra.values()), extra


def test_broken_overflow_chain_loses_one_row(tmp_path):
    datadir = DataDir(tmp_path)
    schema.create_workspace(datadir, clock=FakeClock(), log=LOG)
    database = datadir.database("inbox")
    execute(database, *FILL["inbox"][:1])
    before = content(database)["inbox"]
    harmed = database.read_bytes()
    file = PageFile(lambda at, length: harmed[at : at + length], len(harmed))
    overflow = next(
        n for n in range(2, file.count + 1)
        if not file.kind(n) and harmed[(n - 1) * PAGE_BYTES + 4 : n * PAGE_BYTES].count(b"x") > 4000
    )  # fmt: skip
    with database.open("r+b") as damaged:
        damaged.truncate((overflow - 1) * PAGE_BYTES)
        damaged.seek(0, io.SEEK_END)
        damaged.write(harmed[overflow * PAGE_BYTES :])
    _, report = recover(datadir, "inbox")
    assert report["inbox"].rows + report["inbox"].rows_lost >= len(before)
    assert report["inbox"].rows_lost > 0


def test_numbers_of_lost_rows_are_not_reused(tmp_path):
    datadir = DataDir(tmp_path)
    schema.create_workspace(datadir, clock=FakeClock(), log=LOG)
    database = datadir.database("inbox")
    execute(database, *FILL["inbox"])
    recover(datadir, "inbox")
    execute(database, FILL["inbox"][0].replace("'in_'", "'again_'").replace("'c'", "'d'"))
    with closing(sqlite3.connect(database)) as connection:
        lowest = "SELECT min(number) FROM inbox WHERE id LIKE 'again%'"
        assert connection.execute(lowest).fetchone() == (5001,)
