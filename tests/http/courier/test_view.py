"""Snapshots of views over HTTP."""

import json

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


def test_snapshot_of_large_envelopes_is_paged_by_bytes(client, monkeypatch):
    monkeypatch.setattr("appliance.courier.admin.DELIVERY_BYTES_MAX", 50_000)
    names = [f"{number:02}" for number in range(20)]
    for name in reversed(names):
        post(client, "/v1/enqueue", {
            "to": f"agents/{name}/inbox", "envelope": envelope("e", payload="x" * 10_000),
        })  # fmt: skip
    seen, query, pages = [], {}, 0
    while True:
        page = get(client, "/v1/snapshot", **query)
        assert len(json.dumps(page)) < 52_000
        seen += [row["addr"] for row in page["rows"]]
        pages += 1
        if not page["has_more"]:
            break
        query = {"after": seen[-1]}
    assert seen == [f"agents/{name}/inbox" for name in names]
    assert pages > 3
