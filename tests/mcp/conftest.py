"""A served hub, and ways for the official client to reach it."""

from collections.abc import Iterator

import pytest

from tests.support.hubprocess import HubProcess, served


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with served(tmp_path_factory.mktemp("hub"), "--no-limits") as running:
        yield running
