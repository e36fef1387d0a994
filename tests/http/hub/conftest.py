"""A served hub, and a channel of its own for each test."""

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


@pytest.fixture
def channel_and_topics(hub: ServedHub, request: pytest.FixtureRequest) -> tuple[str, str, str]:
    """A channel and two of its topics."""
    channel_id = hub.channel(request.node.name[:100])
    return channel_id, hub.topic(channel_id, "a"), hub.topic(channel_id, "b")
