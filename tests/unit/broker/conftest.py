"""A broker for each test, which leaves no orphans."""

import pytest

from tests.support.broker import BrokerFixture


@pytest.fixture
def broker(tmp_path):
    broker = BrokerFixture(tmp_path)
    yield broker
    assert broker.orphans() == []
    broker.close()
