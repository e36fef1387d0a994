"""A served hub for each file, and agents with tokens."""

import pytest

from tests.support.servedhub import ServedHub

SCOPES = ("hub:read", "hub:post", "bus:read", "bus:write", "streams:*:subscribe")


@pytest.fixture
def agent(hub):
    """Make a connection with a new token of that name."""

    def connect(name, *scopes):
        command = {"name": name, "scopes": list(scopes or SCOPES)}
        made = ServedHub.made(hub.http.post("/api/v1/tokens", command))
        return hub.connect(made["secret"])

    return connect
