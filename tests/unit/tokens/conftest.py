"""Tokens on the file of a new workspace, with a clock that only the test moves."""

import sys
from pathlib import Path

import pytest

from appliance.kernel.auth import TokenBook
from appliance.kernel.batch import BatchRunner
from appliance.kernel.clock import SystemClock
from appliance.kernel.ids import IdFactory
from appliance.kernel.log import Log
from appliance.kernel.reader import Reader, open_connection
from appliance.tokens import queries, wire
from appliance.tokens.service import Tokens
from appliance.workspace.datadir import DataDir
from appliance.workspace.schema import create_workspace
from appliance.workspace.stopped_store import StoppedStore
from tests.support.clock import FakeClock

READ = "hub:read"


class TokensFixture:
    """Tokens on a file, and the book a guard would read."""

    def __init__(self, path: Path) -> None:
        self.datadir = DataDir(path)
        log = Log(sys.stderr.buffer, level="error")
        create_workspace(self.datadir, clock=SystemClock(), log=log, stores=["auth"])
        self.clock = FakeClock()
        self.connection = open_connection(self.datadir.database("auth"), "OFF")
        runner = BatchRunner(self.connection, self.clock, IdFactory(self.clock))
        self.file = StoppedStore(runner, Reader(self.connection, self.clock, query_only=False))
        self.start()

    def start(self) -> None:
        self.book = TokenBook()
        self.tokens = Tokens(self.file, self.book, self.datadir, self.clock)

    def create(self, name="bot", scopes=(READ,), days=None, senders=None) -> wire.TokenIssued:
        return self.tokens.create(wire.CreateToken(name, list(scopes), days, senders))

    def rotate(self, token_id: str, grace: float | None = None) -> str:
        return self.tokens.rotate(token_id, wire.RotateToken(grace)).secret

    def opens(self, secret: str) -> bool:
        """As the guard checks it."""
        principal = self.book.find(secret)
        return principal is not None and self.book.is_valid(principal, self.clock.now_ms())

    def state(self, token_id: str) -> str:
        return self.file.read(queries.token, token_id, self.clock.now_ms()).state


@pytest.fixture
def fixture(tmp_path):
    fixture = TokensFixture(tmp_path)
    yield fixture
    fixture.connection.close()
