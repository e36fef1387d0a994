"""Brokers on one file, which leave no orphans."""

import pytest

from tests.support.broker import BrokerFixture


@pytest.fixture
def new_broker(tmp_path):
    """Makes a broker with the given settings, and closes the one before."""
    brokers = []

    def make(**values):
        if brokers:
            brokers[-1].close()
        brokers.append(BrokerFixture(tmp_path, **values))
        return brokers[-1]

    yield make
    if brokers:
        assert brokers[-1].orphans() == []
        brokers[-1].close()


@pytest.fixture
def broker(new_broker):
    return new_broker()
