"""Receive, ack and nack over HTTP."""

from tests.support.courier import INBOX, CourierFixture
from tests.support.courier_http import enqueue, get, post, receive


def test_double_and_foreign_acks_are_409(client):
    enqueue(client, "e-1")
    got = receive(client)
    ack = {"receiver": got["receiver"], "ids": ["e-1"]}
    assert post(client, "/v1/ack", ack)["done"] == ["e-1"]
    assert post(client, "/v1/ack", ack, 409)["code"] == "LEASE_LOST"
    enqueue(client, "e-2")
    receive(client)
    post(client, "/v1/ack", {"receiver": got["receiver"], "ids": ["e-2"]}, 409)


def test_release_is_not_counted_but_fail_is_and_reject_makes_a_dead_letter():
    courier = CourierFixture(deliveries_max=2, backoff_seconds=0.0)
    client = courier.client()
    enqueue(client, "e-1")
    for mode in ("release", "release", "release", "fail"):
        got = receive(client)
        post(client, "/v1/nack", {"receiver": got["receiver"], "ids": ["e-1"], "mode": mode})
    assert get(client, "/v1/stats", stream=INBOX)["ready"] == 1
    got = receive(client)
    post(client, "/v1/nack", {"receiver": got["receiver"], "ids": ["e-1"], "error": "no luck"})
    (dead,) = get(client, "/v1/peek", stream=INBOX, state="dead")["envelopes"]
    assert (dead["reason"], dead["error"], dead["attempts"]) == (
        "max_deliveries",
        "no luck",
        2,
    )
    enqueue(client, "e-2")
    got = receive(client)
    post(client, "/v1/nack", {"receiver": got["receiver"], "ids": ["e-2"], "mode": "reject"})
    reasons = [
        row["reason"] for row in get(client, "/v1/peek", stream=INBOX, state="dead")["envelopes"]
    ]
    assert reasons == ["max_deliveries", "rejected"]
