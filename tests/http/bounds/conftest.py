"""A served hub for each file, and agents with tokens."""

from collections.abc import Iterator

import pytest

from tests.support.servedhub import ServedHub, serve

SCOPES = ("hub:read", "hub:post", "bus:read", "bus:write", "streams:*:subscribe")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHub]:
    with serve(tmp_path_factory.mktemp("hub")) as running:
        yield running


@pytest.fixture
def agent(hub):
    """Make a connection with a new token of that name."""

    def connect(name, *scopes):
        command = {"name": name, "scopes": list(scopes or SCOPES)}
        made = ServedHub.made(hub.http.post("/api/v1/tokens", command))
        return hub.connect(made["secret"])

    return connect
