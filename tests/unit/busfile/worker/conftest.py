"""A repository in a temporary folder."""

import pytest

from tests.support.repository import IDENTITY, new_repository


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def repository(tmp_path):
    return new_repository(tmp_path / "repository")
