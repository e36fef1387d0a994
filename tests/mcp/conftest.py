"""A served hub, and ways for the official client to reach it."""

from collections.abc import Iterator

import pytest

from tests.support.servedhub import ServedHub, serve


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHub]:
    with serve(tmp_path_factory.mktemp("hub")) as running:
        yield running
