"""Snapshots of views over HTTP."""

from tests.support.courier import INBOX, CourierFixture, envelope
from tests.support.courier_http import enqueue, get, post


def test_snapshot_has_the_last_envelope_of_each_inbox(client):
    enqueue(client, "a")
    enqueue(client, "b")
    enqueue(client, "c", to="agents/Bo/outbox")
    answer = get(client, "/v1/snapshot", view="latestPerAgent")
    assert [(row["addr"], row["env"]["id"]) for row in answer["rows"]] == [(INBOX, "b")]
    assert answer["watermark"] == 2
    assert answer["boot_id"] == "boot-1"
    assert get(client, "/v1/snapshot", 404, view="nothing")["code"] == "UNKNOWN_VIEW"


def test_duplicate_in_a_batch_is_not_the_latest():
    client = CourierFixture().client()
    enqueue(client, "old")
    batch = [envelope("new"), envelope("old", type="other"), envelope("new", type="other")]
    post(client, "/v1/enqueue/batch", {"to": INBOX, "envelopes": batch})
    (row,) = get(client, "/v1/snapshot")["rows"]
    assert (row["env"]["id"], row["env"]["type"]) == ("new", "t")
