"""Outbox fixtures, one for each test."""

import io
import shutil
from pathlib import Path

import pytest

from appliance.kernel.log import Log
from appliance.workspace import schema
from appliance.workspace.datadir import DataDir
from tests.support.clock import FakeClock
from tests.support.outbox import OutboxFixture


@pytest.fixture(scope="session")
def new_file(tmp_path_factory):
    """An empty outbox database, to be copied."""
    datadir = DataDir(tmp_path_factory.mktemp("new"))
    schema.create_workspace(datadir, clock=FakeClock(), log=Log(io.BytesIO()))
    return datadir.database("outbox")


@pytest.fixture
def new_outbox(new_file, tmp_path):
    """Makes an outbox with the given settings."""
    fixtures = []

    def make(**settings):
        folder = tmp_path / str(len(fixtures))
        folder.mkdir()
        fixtures.append(OutboxFixture(Path(shutil.copy(new_file, folder)), **settings))
        return fixtures[-1]

    yield make
    for outbox in fixtures:
        outbox.store.close()


@pytest.fixture
def outbox(new_outbox):
    return new_outbox()
