"""Backups and restores of a store that another program writes."""

from contextlib import closing

import msgspec
import pytest

from appliance.backup.errors import RestoreRefused
from appliance.kernel import store_declaration
from tests.support.board import DECLARED, READ, OtherProgram, open_board
from tests.support.restored_workspace import BackedUp


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
    with pytest.raises(RestoreRefused) as refused:
        workspace.restore(made)
    assert f"pid {other.process.pid} (" in refused.value.message
    other.process.communicate()
    result = workspace.restore(made)
    assert ".board/notices.db" in result.plan.replaced
    with closing(open_board(workspace.datadir.database("board"), "FULL")) as connection:
        assert connection.execute(READ).fetchall() == [("kept",)]
    safety = workspace.backups.read(result.safety)
    assert safety.stores["board"].rows == {"notice": 2}
