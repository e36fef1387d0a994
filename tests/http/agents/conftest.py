"""A served hub for each file, with a channel and a topic."""

from collections.abc import Iterator

import pytest

from tests.support.servedhub import ServedHub, serve


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHub]:
    with serve(tmp_path_factory.mktemp("hub")) as running:
        yield running


@pytest.fixture(scope="module")
def ids(hub: ServedHub) -> tuple[str, str]:
    """A channel and its topic."""
    return hub.channel_with_topic("general")
