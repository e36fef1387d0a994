"""The epoch of a workspace."""

import sqlite3

import pytest

from appliance.tokens import epoch
from appliance.workspace.migration import load


@pytest.fixture
def auth():
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for migration in load("auth"):
        connection.executescript(migration.sql)
    yield connection
    connection.close()


def test_epoch_is_generated_once(auth):
    first = epoch.current(auth)
    assert len(first) == 32
    assert epoch.current(auth) == first
