"""The broker's largest lists: pages are limited in bytes and contain each row once."""

import pytest

from appliance.broker import queries, wire
from tests.support.broker import BrokerFixture
from tests.support.pages import pages_of

BYTES = 1 << 20
MANY = queries.SUBSCRIBERS_MAX
KEYS = [f"{number:064x}" for number in range(5000)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    broker = BrokerFixture(tmp_path_factory.mktemp("lists"))
    yield broker
    broker.close()


def insert(broker, table, rows):
    def fill(tx):
        for row in rows:
            names, marks = ", ".join(row), ", ".join("?" * len(row))
            tx.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(row.values()))

    broker.store.write(fill)


def lab(broker):
    return broker.service.directory.mesh("lab").id


def pages(ask, name, query=wire.MeshRowsQuery):
    """The rows of all pages; each is checked."""
    every = pages_of(lambda after: ask(query(after=after, limit=100_000)), "", bytes_max=BYTES)
    lists = [getattr(page, name) for page in every]
    assert len(lists) > 1
    assert all(lists)
    return [row for rows in lists for row in rows]


def test_members(broker):
    mesh = lab(broker)
    # A revoked member's name may be another's.
    rows = [{"mesh_id": mesh, "pubkey": key, "name": f"m{n // 2:0>99}", "added_ms": 1,
             "revoked_ms": 2, "successor": KEYS[-1]} for n, key in enumerate(KEYS)]  # fmt: skip
    insert(broker, "member", rows)
    listed = pages(lambda query: broker.registry.members("lab", query), "members")
    assert len(listed) == len(KEYS) + 3
    assert [row.pubkey for row in listed if row.state == "revoked"] == KEYS


@pytest.mark.parametrize("kind", ["topic", "queue"])
def test_destinations_with_the_maximum_of_subscribers_are_listed(broker, kind):
    mesh = lab(broker)
    names = [f"{kind}-{number:02}" for number in range(20)]
    insert(
        broker, "place",
        [{"mesh_id": mesh, "kind": kind, "name": name, "created_ms": 1} for name in names],
    )  # fmt: skip
    insert(
        broker, "subscription",
        [{"mesh_id": mesh, "kind": kind, "name": name, "subscriber": key, "since_ms": 1}
         for name in names for key in KEYS[:MANY]],
    )  # fmt: skip
    listed = pages(lambda query: broker.registry.destinations("lab", kind, query), "destinations")
    assert [row.name for row in listed if row.name in names] == names
    assert len(listed) == len(names) + 1
    assert {len(row.subscribers) for row in listed if row.name in names} == {MANY}


def test_webhooks(broker):
    mesh = lab(broker)
    rows = [{"mesh_id": mesh, "id": f"bhook_{n:05}", "url": f"http://127.0.0.1/{'x' * 2000}",
             "added_ms": 1, "secret": "s"} for n in range(1000)]  # fmt: skip
    insert(broker, "webhook", rows)
    listed = pages(lambda query: broker.registry.webhooks("lab", query), "webhooks")
    assert [row.id for row in listed] == [row["id"] for row in rows]
