"""What the broker of a mesh elsewhere replies: lists that never end, topics that do not exist."""

from contextlib import contextmanager

import pytest

from appliance.inbox import wire
from appliance.inbox.http_broker_client import HttpBrokerClient
from appliance.kernel.auth import ADMIN, Principal
from appliance.kernel.clock import SystemClock
from appliance.mesh.broker_endpoint import BrokerEndpoint
from tests.support.faulty_hub import FakeHttp, http_hub
from tests.support.inbox import OWN
from tests.support.pages import pages_of

BOSS = Principal("server", "server", frozenset({ADMIN}))


@pytest.fixture
def inbox(new_inbox):
    return new_inbox(mesh="lab")


@contextmanager
def broker(inbox, fake):
    """The broker of the mesh, which replies as `fake` does."""
    with http_hub(fake) as server:
        endpoint = BrokerEndpoint("lab", f"http://127.0.0.1:{server.port}")
        inbox.service.broker_clients["lab"] = HttpBrokerClient(endpoint, OWN, SystemClock())
        yield


def member(number):
    return {"pubkey": f"{number:064x}", "name": f"m{number}", "state": "active"}


@pytest.mark.parametrize("rows", [[], [member(1)]])
def test_endless_lists_of_a_broker_are_cut(inbox, rows):
    fake = FakeHttp((200, {}, {"members": rows, "has_more": True, "next": "again"}))
    with broker(inbox, fake):
        pages = pages_of(
            lambda after: inbox.service.peers(wire.MeshListQuery(after=after), BOSS), ""
        )
        assert pages[-1].next is None
        assert sum(len(page.peers) for page in pages) == 2 * len(rows)
        assert len(fake.requests) <= 2


def test_only_unsubscribing_works_for_topics_that_do_not_exist(inbox):
    topic = wire.TopicChange("absent")
    with broker(inbox, FakeHttp((404, {}, {"code": "DESTINATION_NOT_FOUND"}))):
        assert inbox.service.subscribe(topic, BOSS, wanted=False).changed is False
        with pytest.raises(wire.BrokerRefused):
            inbox.service.subscribe(topic, BOSS)
