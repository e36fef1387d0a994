"""Backups and restores of a store that another program writes."""

import subprocess
import sys
from contextlib import closing

import msgspec
import pytest

from appliance.backup import scratch_stores
from appliance.backup.deadline import Deadline
from appliance.backup.unpack import unpack
from appliance.kernel import store_declaration
from appliance.workspace.datadir import DataDir
from appliance.workspace.open_files import StoreInUse
from tests.support.restored_workspace import CLOCK, BackedUp, rows_of
from tests.support.shared_board import DECLARED, READ, OtherProgram, open_board

WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=5)
print(flush=True)
while True:
    connection.execute("INSERT INTO notice (text) VALUES ('x')")
"""

LATE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=3)
print("open", flush=True)
try:
    connection.execute("INSERT INTO notice (text) VALUES ('late')")
except sqlite3.OperationalError as error:
    print(error, flush=True)
"""


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.setitem(store_declaration.DECLARATIONS, "board", DECLARED)
    for module in ("cut", "restore_job"):
        monkeypatch.setattr(f"appliance.backup.{module}.SHARED_STORES", ("board",))
    return BackedUp(tmp_path)


@pytest.fixture
def other(workspace):
    program = OtherProgram(workspace.datadir.database("board"))
    program.write("kept")
    yield program
    program.process.communicate()


def test_store_that_is_being_written_is_read_alone_and_delays_nobody(workspace, other):
    other.run("BEGIN IMMEDIATE")
    other.write("not committed")
    made = workspace.back_up()
    assert made.stores["board"].held_by_other is True
    assert made.stores["board"].rows == {"notice": 1}
    assert made.pause_ms < 1000, "the other stores did not wait for it"
    other.run("COMMIT")
    assert workspace.back_up().stores["board"].held_by_other is msgspec.UNSET


def test_restore_waits_until_no_program_has_the_file_open(workspace, other):
    made = workspace.back_up()
    other.write("lost")
    with pytest.raises(StoreInUse) as refused:
        workspace.restore(made)
    assert f"pid {other.process.pid} (" in refused.value.message
    other.process.communicate()
    result = workspace.restore(made)
    assert ".board/notices.db" in result.plan.replaced
    with closing(open_board(workspace.datadir.database("board"), "FULL")) as connection:
        assert connection.execute(READ).fetchall() == [("kept",)]
    safety = workspace.backups.read(result.safety)
    assert safety.stores["board"].rows == {"notice": 2}


def test_program_during_swap_never_uses_replaced_file(workspace, other):
    """It is refused by SQLite's lock until the new file is there, and there always is a file."""
    made = workspace.back_up()
    other.write("lost")
    other.process.communicate()
    database = workspace.datadir.database("board")
    late, steps = [], []

    def come(step):
        steps.append(step)
        if step == "safety copy made":
            late.append(subprocess.Popen([sys.executable, "-c", LATE, database],
                                         stdout=subprocess.PIPE, text=True))  # fmt: skip
            assert late[0].stdout.readline() == "open\n"
        if step.startswith(("linked", "moved")):
            assert database.exists()

    result = workspace.restore(made, come)
    assert {"linked notices.db", "moved notices.db"} <= set(steps)
    assert late[0].wait(30) == 0
    assert late[0].stdout.read() == "database is locked\n"
    assert result.rows["board"] == {"notice": 1}
    with closing(open_board(database, "FULL")) as connection:
        assert connection.execute(READ).fetchall() == [("kept",)]
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_writer_that_never_pauses_is_in_the_backup_up_to_the_cut(workspace, other):
    """What is counted live differs from the cut; the cut is what is verified and restored."""
    other.process.communicate()
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(workspace.datadir.database("board"))],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    writer.stdout.readline()
    try:
        made = workspace.back_up()
        copy = DataDir(workspace.datadir.workspace.parent / "copy")
        unpack(workspace.backups.path(made.name), made, copy.workspace, None)
        assert scratch_stores.problems(copy, made, Deadline(CLOCK, 60)) == []
        with pytest.raises(StoreInUse, match=f"pid {writer.pid} "):
            workspace.restore(made)
    finally:
        writer.kill()
        writer.communicate()
    (count,) = rows_of(workspace.datadir, "SELECT count(*) FROM notice", "board")[0]
    assert count > made.stores["board"].rows["notice"]
    workspace.restore(made)
    assert rows_of(workspace.datadir, "SELECT count(*) FROM notice", "board") == [
        (made.stores["board"].rows["notice"],)
    ]
