"""A bus in a folder of its own."""

import pytest

from tests.support.bus import BusFixture


@pytest.fixture
def bus(tmp_path):
    return BusFixture(tmp_path)
