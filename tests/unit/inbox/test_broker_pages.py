"""Topics and members of a mesh, page by page: limited in rows and bytes, each row once."""

import pytest

from appliance.inbox import wire
from appliance.inbox.http_broker_client import HttpBrokerClient
from appliance.inbox.settings import BrokerEndpoint
from appliance.integrations.inbox_broker import LocalBrokerClient
from appliance.kernel.auth import ADMIN, Principal
from appliance.kernel.clock import SystemClock
from tests.support.broker import BrokerFixture
from tests.support.fakehub import FakeHttp, http_hub
from tests.support.inbox import OWN
from tests.support.pages import pages_of

BOSS = Principal("server", "server", frozenset({ADMIN}))
COUNT = 10_000
LONG = "t" * 90


@pytest.fixture
def inbox(new_inbox):
    return new_inbox(mesh="lab")


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """With as many members and topics as it may have."""
    broker = BrokerFixture(tmp_path_factory.mktemp("broker"))
    mesh = broker.service.directory.mesh("lab").id

    def fill(tx):
        for number in range(COUNT - len(broker.service.directory.members_of(mesh))):
            tx.execute(
                "INSERT INTO member (mesh_id, pubkey, name, added_ms) VALUES (?, ?, ?, 1)",
                (mesh, f"{number:064x}", f"m{number:05}" + LONG),
            )
        for number in range(COUNT):
            tx.execute(
                "INSERT INTO place (mesh_id, kind, name, created_ms) VALUES (?, 'topic', ?, 1)",
                (mesh, f"{number:05}" + LONG),
            )

    broker.store.write(fill)
    broker.service.reload()
    yield broker
    broker.close()


def pages(ask, name, limit=100_000):
    """The rows of all pages, each of which is checked, and how many pages there were."""
    every = pages_of(lambda after: ask(wire.MeshListQuery(after=after, limit=limit), BOSS), "")
    lists = [getattr(page, name) for page in every]
    assert max(map(len, lists)) <= limit
    assert all(lists[:-1])
    assert every[-1].next is None
    return [row for rows in lists for row in rows], len(lists)


def test_members_of_a_large_mesh(inbox, broker):
    inbox.service.broker_clients["lab"] = LocalBrokerClient(
        broker.service, broker.registry, "lab", OWN, lambda _status: None
    )
    listed, count = pages(inbox.service.peers, "peers")
    names = [row.name for row in listed if row.name.startswith("m0")]
    assert names == sorted(set(names))
    assert len(listed) == COUNT
    assert count > 1


def test_topics_of_a_large_mesh(inbox, broker):
    client = LocalBrokerClient(broker.service, broker.registry, "lab", OWN, lambda _status: None)
    inbox.service.broker_clients["lab"] = client
    listed, count = pages(inbox.service.topics, "topics", 999)
    there = {f"{number:05}" + LONG for number in range(COUNT)} | {"alerts"}
    assert [row.name for row in listed] == sorted(there)
    assert count > 1


# -- brokers elsewhere -----------------------------------------------------------------------


def remote(inbox, endpoint, mesh="lab"):
    endpoint = BrokerEndpoint(mesh, f"http://127.0.0.1:{endpoint.port}")
    inbox.service.broker_clients["lab"] = HttpBrokerClient(
        endpoint, OWN, SystemClock(), lambda _frame: None
    )


def member(number):
    return {"pubkey": f"{number:064x}", "name": f"m{number}", "state": "active"}


@pytest.mark.parametrize("rows", [[], [member(1)]])
def test_endless_lists_of_a_broker_are_cut(inbox, rows):
    fake = FakeHttp((200, {}, {"members": rows, "has_more": True, "next": "again"}))
    with http_hub(fake) as endpoint:
        remote(inbox, endpoint)
        listed, _ = pages(inbox.service.peers, "peers")
        assert len(listed) == 2 * len(rows)
        assert len(fake.requests) <= 2
