"""An example resource for each test."""

import pytest

from tests.support.notes_resource import NoteResource


@pytest.fixture
def resource() -> NoteResource:
    return NoteResource()
