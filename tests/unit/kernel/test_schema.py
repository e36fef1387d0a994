"""Migration files are read and cut rightly; snapshots are whole; a workspace is made once."""

import io
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from appliance.kernel import adopt, manifest, snapshot
from appliance.kernel.clock import SystemClock
from appliance.kernel.datadir import DataDir, HubRunning, WriterLock
from appliance.kernel.ids import IdFactory
from appliance.kernel.log import Log
from appliance.kernel.migration import BadMigration, load, newest, read, statements
from appliance.kernel.schema import Created, create_workspace, id_order, migrate, state

CLOCK = SystemClock()
HEADER = "-- opens-with: 1\n"


def quiet() -> Log:
    return Log(io.BytesIO())


def make(workspace: Path, locked: bool = False) -> Created:
    return create_workspace(DataDir(workspace), clock=CLOCK, log=quiet(), locked=locked)


# -- files ---------------------------------------------------------------------------------


def test_every_released_folder_is_numbered_and_promises_something() -> None:
    for store in ("hub", "auth"):
        migrations = load(store)
        assert newest(migrations) >= 1
        assert all(1 <= each.opens_with <= each.number for each in migrations)
    assert [each.name for each in load("hub") if each.optional] == ["0001_schema_v1_fts.sql"]


def test_line_endings_do_not_change_the_hash() -> None:
    text = HEADER + "CREATE TABLE a (b);\n"
    unix, windows = read("0001_a.sql", text), read("0001_a.sql", text.replace("\n", "\r\n"))
    assert unix.sha256 == windows.sha256
    assert unix.sha256 != read("0001_a.sql", text + " ").sha256


@pytest.mark.parametrize("name", ["1_a.sql", "0001.sql", "0001_a.txt"])
def test_a_name_without_a_number_is_refused(name: str) -> None:
    with pytest.raises(BadMigration):
        read(name, HEADER)


def test_a_file_that_promises_nothing_to_older_programs_is_refused() -> None:
    with pytest.raises(BadMigration, match="opens-with"):
        read("0001_a.sql", "CREATE TABLE a (b);")


def test_a_hole_in_the_numbers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    for number in (1, 3):
        (tmp_path / "s" / f"{number:04}_a.sql").write_text(HEADER)
    with pytest.raises(BadMigration, match="numbered"):
        load("s", tmp_path)


def test_statements_are_cut_where_sqlite_says_they_end() -> None:
    sql = """-- a comment; with a semicolon
CREATE TABLE t (a TEXT DEFAULT ';', b); /* ; */
CREATE TRIGGER g AFTER INSERT ON t BEGIN UPDATE t SET a = ';'; SELECT 1; END;
-- at the end; nothing
"""
    cut = list(statements(read("0001_a.sql", HEADER + sql)))
    assert len(cut) == 2
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in cut:
            connection.execute(statement)


def test_a_last_statement_without_its_semicolon_is_not_forgotten() -> None:
    assert len(list(statements(read("0001_a.sql", HEADER + "CREATE TABLE a (b)\n")))) == 1


@pytest.mark.parametrize(
    "sql", ["COMMIT;", "/* x */ begin;", "-- x\nPRAGMA foreign_keys=OFF;", "VACUUM;", "end;"]
)
def test_what_would_leave_the_transaction_is_refused(sql: str) -> None:
    with pytest.raises(BadMigration, match="no place"):
        list(statements(read("0001_a.sql", HEADER + sql)))


# -- snapshots -----------------------------------------------------------------------------


def test_a_snapshot_has_what_is_only_in_the_log_so_far(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.sqlite3", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (a)")
        connection.execute("INSERT INTO t VALUES ('kept')")
        copy = snapshot.take(connection, tmp_path / "backups", "a.sqlite3", 3, 1_700_000_000_123)
    assert copy.name == "a.sqlite3.backup-v3-20231114T221320123Z"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "backups").iterdir()] == [copy.name]
    with closing(sqlite3.connect(copy)) as opened:
        assert opened.execute("SELECT a FROM t").fetchall() == [("kept",)]
        assert opened.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_snapshot_that_fails_its_check_does_not_remain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(_: Path) -> None:
        raise snapshot.SnapshotDamaged("row 1 missing")

    monkeypatch.setattr(snapshot, "_check", damaged)
    with (
        closing(sqlite3.connect(tmp_path / "a.sqlite3")) as connection,
        pytest.raises(snapshot.SnapshotDamaged),
    ):
        snapshot.take(connection, tmp_path / "backups", "a.sqlite3", 1, 0)
    assert not list((tmp_path / "backups").iterdir())


def test_the_last_five_snapshots_of_each_file_are_kept(tmp_path: Path) -> None:
    names = [f"a.sqlite3.backup-v{9 - i}-2026010{i}T000000000Z" for i in range(1, 8)]
    other = "b.sqlite3.backup-v1-20200101T000000000Z"
    for name in (*names, other):
        (tmp_path / name).touch()
    assert [path.name for path in snapshot.prune(tmp_path, "a.sqlite3")] == names[:2]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names[2:], other])


# -- the order of messages -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "order"),
    [
        ([], "id"),
        (["3f", "a0", "m9"], "id"),
        (["b", "a"], "rowid"),
        (["a", "zz"], "rowid"),  # rises, but what we add would come before it
        (["msg_01ARZ3NDEKTSV4RRFFQ69G5FAV"], "id"),
        (["msg_7ZZZZZZZZZ0000000000000000"], "id"),  # from the future, but one of ours
        (["msg_9f0c5e0e-2a83-4a3c-9d1e-3c1c8b7a6f00"], "rowid"),
    ],
)
def test_ids_are_the_order_only_if_old_and_new_ones_rise(ids: list[str], order: str) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE messages (id TEXT PRIMARY KEY)")
        connection.executemany("INSERT INTO messages VALUES (?)", [(each,) for each in ids])
        assert adopt.find_id_order(connection, CLOCK.now_ms()).order == order
        if order == "id":
            factory = IdFactory(CLOCK)
            factory.seed(max(ids, default=None))
            assert all(each < factory.new("msg_") for each in ids)


# -- a workspace ---------------------------------------------------------------------------


def test_a_new_workspace_is_complete_and_private(tmp_path: Path) -> None:
    created = make(tmp_path / "new")
    data = DataDir(tmp_path / "new")
    assert set(created.made) >= {".agentlip", "auth.sqlite3", "db.sqlite3", "token"}
    assert not created.found
    assert not created.running
    assert stat.S_IMODE(data.dir.stat().st_mode) == 0o700
    assert stat.S_IMODE(data.token_file.stat().st_mode) == 0o600
    assert len(data.read_token() or "") == 64
    assert (data.dir / ".gitignore").read_text() == "*\n"
    assert not data.lock_file.exists()
    for store in ("auth", "hub"):
        assert stat.S_IMODE(data.database(store).stat().st_mode) == 0o600
        with closing(sqlite3.connect(data.database(store))) as connection:
            assert not state(connection, store).pending
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_making_it_again_changes_nothing_and_says_so(tmp_path: Path) -> None:
    first = make(tmp_path)
    data = DataDir(tmp_path)
    before = {p: p.read_bytes() for p in data.dir.rglob("*") if p.is_file()}
    for locked in (False, True):
        again = make(tmp_path, locked)
        assert not again.made
        assert set(again.found) == set(first.made)
    assert {p: p.read_bytes() for p in data.dir.rglob("*") if p.is_file()} == before


def test_what_is_missing_is_added_to_what_is_there(tmp_path: Path) -> None:
    make(tmp_path)
    data = DataDir(tmp_path)
    (data.dir / "logs").rmdir()
    assert make(tmp_path).made == (".agentlip/logs",)


@pytest.mark.parametrize("name", ["auth", "courier", "token"])
def test_what_was_there_and_is_lost_is_not_made_again(tmp_path: Path, name: str) -> None:
    make(tmp_path)
    data = DataDir(tmp_path)
    path = data.dir / manifest.file_of(name)
    path.unlink()
    with pytest.raises(manifest.StoreLost, match=f"{name}: its file"):
        make(tmp_path)
    assert not path.exists()


def test_beside_a_running_hub_nothing_is_touched(tmp_path: Path) -> None:
    make(tmp_path)
    data = DataDir(tmp_path)
    lock = WriterLock(data, "hub")
    lock.acquire()
    assert make(tmp_path).running
    data.database("auth").unlink()
    with pytest.raises(HubRunning):
        make(tmp_path)
    lock.release()


def test_the_hub_knows_itself_and_its_order(tmp_path: Path) -> None:
    database = tmp_path / "db.sqlite3"
    migrate(database, "hub", clock=CLOCK, backups=tmp_path / "b", log=quiet())
    with closing(sqlite3.connect(database)) as connection:
        facts = dict(connection.execute("SELECT key, value FROM meta").fetchall())
        assert id_order(connection) == "id"
    assert facts["schema_version"] == "1"
    assert facts["x_schema"] == str(newest(load("hub")))
    assert facts["x_compat"] == "1"
    assert facts["x_id_order"] == "id"
    assert len(facts["db_id"]) == 36
    assert facts["db_id"][14] == "4"
    assert facts["created_at"].endswith("Z")
    assert not (tmp_path / "b").exists()
