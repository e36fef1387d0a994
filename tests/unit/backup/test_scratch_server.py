"""A scratch server that can't start: whether that says something about the copy."""

import pytest

from appliance.backup.deadline import Deadline, Undecided
from appliance.backup.scratch_server import ScratchServer, ServerFailed
from appliance.kernel.clock import SystemClock
from tests.support.workspaces import Filled

CLOCK = SystemClock()


def serve(datadir, seconds=60.0):
    with ScratchServer(datadir, CLOCK, Deadline(CLOCK, seconds)) as server:
        return server.db_id


def test_copy_that_was_never_served_is_served(tmp_path):
    assert serve(Filled(tmp_path / "w").datadir)


def test_damaged_store_is_the_failure_of_the_copy(tmp_path):
    datadir = Filled(tmp_path / "w").datadir
    datadir.database("auth").write_bytes(b"no database" * 1000)
    with pytest.raises(ServerFailed, match="auth"):
        serve(datadir)


def test_time_limit_proves_nothing_and_ends_the_server(tmp_path):
    with pytest.raises(Undecided):
        serve(Filled(tmp_path / "w").datadir, seconds=0.0)
