"""Topics and members of a mesh, page by page: limited in rows and bytes, each row once."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest

from appliance.inbox import service, wire
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
def inbox(new_inbox, monkeypatch):
    monkeypatch.setattr(service, "TOPICS_MAX", 100_000)
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


def test_topics_of_a_large_mesh_and_those_that_only_we_know(inbox, broker):
    """The broker has half of them."""
    ours = [f"{number:05}" + ("a" if number % 2 else LONG) for number in range(0, COUNT, 7)]

    def subscribe(tx):
        for name in ours:
            tx.execute(
                "INSERT INTO topics (mesh, topic, subscribed_at) VALUES ('lab', ?, 1)", (name,)
            )

    inbox.store.write(subscribe)
    inbox.service.broker_clients["lab"] = LocalBrokerClient(
        broker.service, broker.registry, "lab", OWN, lambda _status: None
    )
    listed, count = pages(inbox.service.topics, "topics", 999)
    there = {f"{number:05}" + LONG for number in range(COUNT)} | {"alerts"}
    assert [row.name for row in listed] == sorted(there | set(ours))
    assert {row.name for row in listed if row.subscribed} == set(ours) - there
    assert {row.name for row in listed if row.subscribed_at} == set(ours)
    assert count > 1
    del inbox.service.broker_clients["lab"]
    listed, count = pages(inbox.service.topics, "topics", 100)
    assert [row.name for row in listed] == ours
    assert count == -(-len(ours) // 100)


# -- brokers elsewhere -----------------------------------------------------------------------


def remote(inbox, endpoint, mesh="lab"):
    endpoint = BrokerEndpoint(mesh, f"http://127.0.0.1:{endpoint.port}")
    inbox.service.broker_clients["lab"] = HttpBrokerClient(
        endpoint, OWN, SystemClock(), lambda _frame: None
    )


def query_of(request):
    return {name: row for name, (row,) in parse_qs(urlsplit(request["path"]).query).items()}


def member(number, name=""):
    return {"pubkey": f"{number:064x}", "name": name or f"m{number}", "state": "active"}


@pytest.mark.parametrize("rows", [[], [member(1)]])
def test_endless_lists_of_a_broker_are_cut(inbox, rows):
    fake = FakeHttp((200, {}, {"members": rows, "has_more": True, "next": "again"}))
    with http_hub(fake) as endpoint:
        remote(inbox, endpoint)
        listed, _ = pages(inbox.service.peers, "peers")
        assert len(listed) == 2 * len(rows)
        assert len(fake.requests) <= 2


def test_too_large_pages_are_requested_again_with_fewer_rows(inbox):
    """A page that does not fit is left for the next one; the first is requested again."""
    large = [member(n, "x" * 250) for n in range(4000)]
    assert len(json.dumps(large)) > 1 << 20
    fitting = large[:2000]
    fake = FakeHttp(
        (200, {}, {"members": large, "has_more": True, "next": "c4000"}),
        (200, {}, {"members": fitting, "has_more": True, "next": "c2000"}),
    )
    with http_hub(fake) as endpoint:
        remote(inbox, endpoint)
        page = inbox.service.peers(wire.MeshListQuery(), BOSS)
    assert (len(page.peers), page.next) == (2000, "c2000")
    first, second = map(query_of, fake.requests)
    assert first == {}
    assert 2000 <= int(second["limit"]) < 4000
    fake = FakeHttp(
        (200, {}, {"members": fitting, "has_more": True, "next": "c2000"}),
        (200, {}, {"members": large[2000:], "has_more": False, "next": "c4000"}),
    )
    with http_hub(fake) as endpoint:
        remote(inbox, endpoint)
        page = inbox.service.peers(wire.MeshListQuery(), BOSS)
    assert (len(page.peers), page.next) == (2000, "c2000")
