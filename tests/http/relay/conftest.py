"""A relay with two agents, anna and bert."""

import pytest

from tests.support.relay import RelayFixture


@pytest.fixture
def relay(tmp_path):
    fixture = RelayFixture(tmp_path / "relay")
    fixture.add("anna", "bert")
    yield fixture
    fixture.close()
