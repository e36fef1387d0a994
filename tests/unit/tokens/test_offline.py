"""Token operations on the file, without a hub."""

import sqlite3
from contextlib import closing

import pytest

from appliance.kernel.auth import hash_token
from appliance.tokens import wire
from appliance.tokens.offline import tokens_of
from appliance.workspace.datadir import HubRunning, WriterLock
from tests.unit.tokens.conftest import TokensFixture


def test_offline_needs_the_lock(tmp_path):
    fixture = TokensFixture(tmp_path)
    fixture.connection.close()
    lock = WriterLock(fixture.datadir, "somebody")
    lock.acquire()
    with pytest.raises(HubRunning), tokens_of(fixture.datadir):
        pass
    lock.release()
    with tokens_of(fixture.datadir) as (tokens, _):
        issued = tokens.create(wire.CreateToken("bot", ["hub:read"]))
    assert lock.holder() is None
    with closing(sqlite3.connect(fixture.datadir.database("auth"))) as connection:
        (digest,) = connection.execute(
            "SELECT hash FROM tokens WHERE id = ?", (issued.token.id,)
        ).fetchone()
    assert digest == hash_token(issued.secret)
