"""Lists of the broker as large as they may be: pages limited in bytes, each row once."""

import msgspec
import pytest

from appliance.broker import webhook_wire, wire
from appliance.broker.settings import BrokerSettings
from tests.support.broker import House

BYTES = 1 << 20
MANY = BrokerSettings().subscribers_max
KEYS = [f"{number:064x}" for number in range(5000)]


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    house = House(tmp_path_factory.mktemp("lists"))
    yield house
    house.close()


def insert(house, table, rows):
    def fill(tx):
        for row in rows:
            names, marks = ", ".join(row), ", ".join("?" * len(row))
            tx.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(row.values()))

    house.store.write(fill)


def lab(house):
    return house.broker.directory.mesh("lab").id


def pages(ask, name, query=wire.MeshRowsQuery):
    """The rows of all pages; each is checked."""
    rows, after, count = [], "", 0
    while True:
        page = ask(query(after=after, limit=100_000))
        assert len(msgspec.json.encode(page)) <= BYTES
        found = getattr(page, name)
        assert found
        rows, after, count = rows + found, page.next, count + 1
        if not page.has_more:
            assert count > 1
            return rows


def test_members(house):
    mesh = lab(house)
    # A revoked member's name may be another's.
    rows = [{"mesh_id": mesh, "pubkey": key, "name": f"m{n // 2:0>99}", "added_ms": 1,
             "revoked_ms": 2, "successor": KEYS[-1]} for n, key in enumerate(KEYS)]  # fmt: skip
    insert(house, "member", rows)
    found = pages(lambda query: house.registry.members("lab", query), "members")
    assert len(found) == len(KEYS) + 3
    assert [one.pubkey for one in found if one.state == "revoked"] == KEYS


@pytest.mark.parametrize("kind", ["topic", "queue"])
def test_places_with_as_many_subscribers_as_there_may_be(house, kind):
    mesh = lab(house)
    names = [f"{kind}-{number:02}" for number in range(20)]
    insert(
        house, "place",
        [{"mesh_id": mesh, "kind": kind, "name": name, "created_ms": 1} for name in names],
    )  # fmt: skip
    insert(
        house, "subscription",
        [{"mesh_id": mesh, "kind": kind, "name": name, "subscriber": key, "since_ms": 1}
         for name in names for key in KEYS[:MANY]],
    )  # fmt: skip
    found = pages(lambda query: house.registry.places("lab", kind, query), "places")
    assert [one.name for one in found if one.name in names] == names
    assert len(found) == len(names) + 1
    assert {len(one.subscribers) for one in found if one.name in names} == {MANY}


def test_webhooks(house):
    mesh = lab(house)
    rows = [{"mesh_id": mesh, "id": f"bhook_{n:05}", "url": f"http://127.0.0.1/{'x' * 2000}",
             "added_ms": 1, "secret": "s"} for n in range(1000)]  # fmt: skip
    insert(house, "webhook", rows)
    found = pages(lambda query: house.registry.hooks("lab", query), "webhooks")
    assert [one.id for one in found] == [row["id"] for row in rows]


def test_deliveries_of_a_webhook(house):
    """Those that are being called first, then by priority. Control characters take six bytes."""
    mesh, hook = lab(house), "bhook_deliveries"
    insert(house, "webhook", [{"mesh_id": mesh, "id": hook, "url": "http://127.0.0.1/",
                               "added_ms": 1, "secret": "s"}])  # fmt: skip
    rows = [
        {"mesh_id": mesh, "broker_message_id": f"m{n:03}", "recipient": f"webhook:{hook}",
         "kind": "topic", "rank": n % 3, "ready_ms": 1, "created_ms": 1, "attempts": 1,
         "last_error": "\x01" * 500, "lease_owner": None if n % 2 else f"hook-{hook}",
         "lease_until_ms": None if n % 2 else 1000 + n // 4}
        for n in range(1000)
    ]  # fmt: skip
    insert(house, "delivery_queue", rows)
    leased, waiting = rows[::2], sorted(rows[1::2], key=lambda row: row["rank"])
    found = pages(
        lambda query: house.registry.hook_deliveries("lab", hook, query),
        "deliveries",
        webhook_wire.HookDeliveriesQuery,
    )
    assert [one.message_id for one in found] == [
        row["broker_message_id"] for row in [*leased, *waiting]
    ]
    page = house.registry.hook_deliveries("lab", hook, webhook_wire.HookDeliveriesQuery(limit=2))
    assert (len(page.deliveries), page.more, page.has_more) == (2, True, True)
