"""Couriers with durable streams, one for each test."""

import pytest

from tests.support.courier_durable import DurableCourierFixture


@pytest.fixture
def start_courier(tmp_path):
    """Starts a courier with the given settings."""
    fixtures = []

    def start(**values):
        fixtures.append(DurableCourierFixture(tmp_path, **values))
        return fixtures[-1]

    yield start
    for fixture in fixtures:
        fixture.store.close(10)
