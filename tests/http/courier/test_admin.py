"""Administration over HTTP: redrives, purges, pauses, peeks."""

from tests.support.courier import INBOX
from tests.support.courier_http import dead_letter, enqueue, get, post, receive


def test_redrive_by_id_and_filter_and_dry_run(courier, client):
    dead_letter(courier, client, "a", "b")
    dead_letter(courier, client, "c", type="other")
    dry = post(client, "/v1/streams/redrive", {"stream": INBOX, "type": "other", "dryRun": True})
    assert (dry["count"], dry["ids"], dry["dryRun"]) == (1, ["c"], True)
    assert get(client, "/v1/stats", stream=INBOX)["dead"] == 3
    assert post(client, "/v1/streams/redrive", {"stream": INBOX, "ids": ["b"]})["count"] == 1
    assert [delivery["deliver"]["id"] for delivery in receive(client)["deliveries"]] == ["b"]


def test_purge_dry_run_counts_and_purge_keeps_leased_envelopes(courier, client):
    for id_ in "abc":
        enqueue(client, id_)
    post(client, "/v1/receive", {"stream": INBOX, "max": 1})
    assert post(client, "/v1/streams/purge", {"stream": INBOX, "dryRun": True})["count"] == 2
    assert post(client, "/v1/streams/purge", {"stream": INBOX})["ids"] == ["b", "c"]
    stats = get(client, "/v1/stats", stream=INBOX)
    assert (stats["depth"], stats["inflight"], stats["dropped"]) == (1, 1, {"purged": 2})


def test_condition_that_is_not_known_is_refused_and_nothing_is_purged(courier, client):
    enqueue(client, "e-1")
    for path, body in (
        ("purge", {"idz": ["e-2"]}),
        ("redrive", {"rate": 5}),
        ("pause", {"until": "2099-01-01T00:00:00Z"}),
    ):
        answer = post(client, f"/v1/streams/{path}", {"stream": INBOX, **body}, 400)
        assert answer["code"] == "INVALID_INPUT", answer
    assert get(client, "/v1/stats", stream=INBOX)["depth"] == 1


def test_paused_stream_accepts_but_does_not_deliver(courier, client):
    post(client, "/v1/streams/pause", {"stream": INBOX})
    enqueue(client, "a")
    assert receive(client)["deliveries"] == []
    assert get(client, "/v1/stats", stream=INBOX)["paused"] is True
    post(client, "/v1/streams/resume", {"stream": INBOX})
    assert len(receive(client)["deliveries"]) == 1


def test_peek_pages_with_after(client):
    for id_ in "abcde":
        enqueue(client, id_)
    page = get(client, "/v1/peek", stream=INBOX, limit=3)
    assert [row["id"] for row in page["envelopes"]] == ["a", "b", "c"]
    assert page["has_more"]
    page = get(client, "/v1/peek", stream=INBOX, limit=3, after="c")
    assert [row["id"] for row in page["envelopes"]] == ["d", "e"]
    assert get(client, "/v1/stats", stream=INBOX)["ready"] == 5
