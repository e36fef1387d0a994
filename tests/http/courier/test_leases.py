"""Leases over HTTP end once, and only for their receiver."""

from tests.support.courier_http import enqueue, post, receive


def test_double_and_foreign_acks_are_409(client):
    enqueue(client, "e-1")
    got = receive(client)
    ack = {"receiver": got["receiver"], "ids": ["e-1"]}
    assert post(client, "/v1/ack", ack)["done"] == ["e-1"]
    assert post(client, "/v1/ack", ack, 409)["code"] == "LEASE_LOST"
    enqueue(client, "e-2")
    receive(client)
    post(client, "/v1/ack", {"receiver": got["receiver"], "ids": ["e-2"]}, 409)
