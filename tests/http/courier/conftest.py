"""A courier with a fake clock, and a client of its HTTP API."""

import pytest

from tests.support.courier import CourierFixture


@pytest.fixture
def courier():
    return CourierFixture()


@pytest.fixture
def client(courier):
    return courier.client()
