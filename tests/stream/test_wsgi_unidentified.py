"""Sockets of clients that have not shown who they are: a quota of their own, and their failures."""

import pytest

from tests.support.servedhub import serve
from tests.support.socketclient import Closed, Refused, SocketClient

pytestmark = pytest.mark.slow

SETTINGS = """
[socket]
connections_max = 3
"""
CONSTANTS = {
    "appliance.wsgi.UNAUTHENTICATED_MAX": 4,
    "appliance.broker.member_socket.HELLO_SECONDS_MAX": 60,
    "appliance.web.socket.CLOSE_SECONDS_MAX": 60,
}
LINK = "/broker/v1/link"


@pytest.fixture
def hub(tmp_path):
    with serve(tmp_path, settings=SETTINGS, constants=CONSTANTS) as hub:
        yield hub


def test_links_without_hello_do_not_use_slots_of_others(hub):
    links = [SocketClient(hub.port, None, path=LINK) for _ in range(12)]
    clients = [SocketClient(hub.port, hub.token) for _ in range(3)]
    for client in clients:
        assert client.hello(hub.head)["type"] == "hello_ok"
    with pytest.raises(Refused) as refused:
        SocketClient(hub.port, hub.token)
    assert refused.value.status == 503
    # The oldest of them make room for newer ones.
    for link in links[:8]:
        with pytest.raises((Closed, ConnectionResetError)):
            link.frame()
    links[-1].send({"type": "negotiate", "require": [], "optional": []})
    assert links[-1].recv()["code"]
    for link in links + clients:
        link.close()


def test_wrong_tokens_on_sockets_are_failures_of_their_address(tmp_path):
    settings = "[limits]\nfailures_per_address = 3\nper_connection = 0\n"
    with serve(tmp_path, settings=settings, limits=True) as hub:
        outcomes = []
        for _ in range(200):
            try:
                with SocketClient(hub.port, "wrong") as client:
                    outcomes.append(client.close_code())
            except Refused as refused:
                outcomes.append(refused.status)
                break
        assert outcomes[-1] == 429
        assert set(outcomes[:-1]) == {4401}
        with SocketClient(hub.port, hub.token) as client:
            assert client.hello(hub.head)["type"] == "hello_ok"
        assert hub.http.get("/api/v1/channels").status == 200


def test_wrong_token_beyond_the_quota_is_refused_before_the_upgrade(hub):
    closing = [SocketClient(hub.port, "wrong") for _ in range(4)]
    with pytest.raises(Refused) as refused:
        SocketClient(hub.port, "wrong")
    assert refused.value.status == 401
    with SocketClient(hub.port, hub.token) as client:
        assert client.hello(hub.head)["type"] == "hello_ok"
    for client in closing:
        client.close()
