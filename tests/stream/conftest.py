"""One served hub for all tests of sockets that disturb nobody, and places of their own in it."""

from itertools import count

import pytest

from tests.support.servedhub import serve
from tests.support.socketclient import SocketClient

_numbers = count()


@pytest.fixture(scope="session")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("hub")) as hub:
        yield hub


@pytest.fixture
def ids(hub):
    """Ids of a channel and a topic that no other test talks in."""
    return hub.channel_with_topic(f"place-{next(_numbers)}")


@pytest.fixture
def connect(hub):
    """Makes sockets with the workspace's token; closed at the end."""
    clients = []

    def connect_(**more):
        more.setdefault("token", hub.token)
        clients.append(SocketClient(hub.port, **more))
        return clients[-1]

    yield connect_
    for client in clients:
        client.close()


@pytest.fixture
def client(hub, connect):
    """A socket that has said hello, without subscriptions."""
    client = connect()
    client.hello(hub.head, subscriptions={})
    return client
