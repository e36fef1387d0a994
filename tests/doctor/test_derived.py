"""A rebuild in the appliance's writer ends at its time limit."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from appliance.kernel.batch import Tx
from appliance.kernel.clock import SystemClock
from appliance.kernel.ids import IdFactory
from doctor.derived import rebuild_in_writer
from doctor.wire import RebuildTooLong
from tests.doctor.workspace import WorkspaceFixture

INDEXES = {"what": "indexes", "store": "hub"}
SCHEMA = "SELECT type, name, sql FROM sqlite_schema ORDER BY name"


def test_rebuild_is_interrupted_at_its_limit(tmp_path: Path) -> None:
    workspace = WorkspaceFixture(tmp_path)
    workspace.talk(2000)
    database = workspace.data.database("hub")
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("DROP INDEX idx_messages_channel")
        before = connection.execute(SCHEMA).fetchall()
        tx = Tx(connection, SystemClock(), IdFactory(SystemClock()))
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(RebuildTooLong):
            rebuild_in_writer(tx, INDEXES, 0.0)
        connection.rollback()  # as the writer does; SQLite has, if it was building the index
        assert connection.execute(SCHEMA).fetchall() == before
        assert rebuild_in_writer(tx, INDEXES, 60.0).startswith("created idx_messages_channel;")
        assert rebuild_in_writer(tx, INDEXES, 60.0).startswith("no index was missing;")
