"""One served hub for the tests that only add to it, and its workspace."""

from collections.abc import Iterator

import pytest

from tests.support.hubprocess import HubProcess, served


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with served(tmp_path_factory.mktemp("hub"), "--no-limits") as running:
        for number in range(3):  # a log that is never empty
            running.request("POST", "/api/v1/channels", {"name": f"seed-{number}"})
        yield running
