"""Houses of an outbox, one for each test."""

import io
import shutil
from pathlib import Path

import pytest

from appliance.kernel import schema
from appliance.kernel.datadir import DataDir
from appliance.kernel.log import Log
from tests.support.clock import FakeClock
from tests.support.outbox import Faults, House


@pytest.fixture(scope="session")
def new_file(tmp_path_factory):
    """The file of an outbox that nothing was sent by, to be copied."""
    datadir = DataDir(tmp_path_factory.mktemp("new"))
    schema.create_workspace(datadir, clock=FakeClock(), log=Log(io.BytesIO()))
    return datadir.database("outbox")


@pytest.fixture
def new_house(new_file, tmp_path):
    """Makes a house with settings of its own."""
    Faults.before = Faults.after = None
    houses = []

    def make(**settings):
        folder = tmp_path / str(len(houses))
        folder.mkdir()
        houses.append(House(Path(shutil.copy(new_file, folder)), **settings))
        return houses[-1]

    yield make
    Faults.before = Faults.after = None
    for house in houses:
        house.store.close()


@pytest.fixture
def house(new_house):
    return new_house()


@pytest.fixture
def faults():
    return Faults
