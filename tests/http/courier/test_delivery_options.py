"""Delay, priority, partition key and time to live over HTTP."""

from tests.support.courier import INBOX, CourierFixture
from tests.support.courier_http import enqueue, get, receive


def test_expired_envelope_is_dropped_or_becomes_a_dead_letter():
    for action, key in (("drop", "dropped"), ("dead", "dead")):
        courier = CourierFixture(streams=[{"pattern": "*", "ttl_action": action}])
        client = courier.client()
        enqueue(client, "a", ttlMs=100)
        enqueue(client, "b")
        courier.pass_ms(101)
        stats = get(client, "/v1/stats", stream=INBOX)
        assert stats["ready"] == 1
        assert stats[key] == ({"expired": 1} if action == "drop" else 1)


def test_delay_priority_and_partition_key(courier, client):
    enqueue(client, "later", delayMs=1000)
    enqueue(client, "low", priority=1)
    enqueue(client, "high", priority=9)
    enqueue(client, "k1", partitionKey="k")
    enqueue(client, "k2", partitionKey="k")
    got = [delivery["deliver"]["id"] for delivery in receive(client)["deliveries"]]
    assert got == ["high", "k1", "low"]
    courier.pass_ms(1001)
    assert [delivery["deliver"]["id"] for delivery in receive(client)["deliveries"]] == ["later"]
