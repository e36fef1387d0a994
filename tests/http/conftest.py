"""A channel with a topic in each file's served hub, and a network of agents."""

import pytest

from tests.sdk.conftest import network as network
from tests.support.servedhub import ServedHub


@pytest.fixture(scope="module")
def ids(hub: ServedHub) -> tuple[str, str]:
    """A channel and its topic."""
    return hub.channel_with_topic("general")
