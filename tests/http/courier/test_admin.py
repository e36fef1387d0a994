"""Administration over HTTP: statistics, inspection, redrives, purges, pauses."""

import json

from tests.support.courier import INBOX, CourierFixture
from tests.support.courier_http import dead_letter, enqueue, get, post, receive


def compact_size(answer):
    """The bytes of a reply on the wire."""
    return len(json.dumps(answer, separators=(",", ":"), ensure_ascii=False))


def peeked(client, limit):
    """The ids on each page of a stream."""
    pages, after = [], {}
    while True:
        page = get(client, "/v1/peek", stream=INBOX, **after)
        assert compact_size(page) <= limit
        pages.append([row["id"] for row in page["envelopes"]])
        if not page["has_more"]:
            return pages
        after = {"after": pages[-1][-1]}


def test_stats_of_unknown_stream_is_404(client):
    assert get(client, "/v1/stats", 404, stream="nobody")["code"] == "UNKNOWN_STREAM"


def test_stats_have_the_fields_of_the_specification(client):
    enqueue(client, "e-1")
    stats = get(client, "/v1/stats", stream=INBOX)
    for name in ("depth", "inflight", "rateIn", "rateOut", "latP50", "latP95", "lastTs"):
        assert name in stats
    assert stats["lastTs"].endswith("Z")
    everything = get(client, "/v1/metrics")
    assert everything["streams"][0]["id"] == INBOX
    assert everything["streams"][0]["stats"]["depth"] == 1


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


def test_pause_with_seconds_ends_by_itself(courier, client):
    answer = post(client, "/v1/streams/pause", {"stream": INBOX, "seconds": 2})
    assert answer["until"].endswith("Z")
    enqueue(client, "a")
    courier.pass_ms(1999)
    assert receive(client)["deliveries"] == []
    courier.pass_ms(2)
    assert len(receive(client)["deliveries"]) == 1


def test_envelope_is_found_in_every_state(courier, client):
    enqueue(client, "a")
    assert get(client, "/v1/envelope", stream=INBOX, id="a")["state"] == "ready"
    receive(client)
    kept = get(client, "/v1/envelope", stream=INBOX, id="a")
    assert (kept["state"], kept["holder"]) == ("leased", "anonymous")
    get(client, "/v1/envelope", 404, stream=INBOX, id="b")


def test_peek_pages_with_after(client):
    for id_ in "abcde":
        enqueue(client, id_)
    page = get(client, "/v1/peek", stream=INBOX, limit=3)
    assert [row["id"] for row in page["envelopes"]] == ["a", "b", "c"]
    assert page["has_more"]
    page = get(client, "/v1/peek", stream=INBOX, limit=3, after="c")
    assert [row["id"] for row in page["envelopes"]] == ["d", "e"]
    assert get(client, "/v1/stats", stream=INBOX)["ready"] == 5


def test_history_of_failed_attempts_survives_a_redrive(courier, client):
    enqueue(client, "a")
    got = receive(client)
    nack = {"receiver": got["receiver"], "ids": ["a"], "error": "first"}
    post(client, "/v1/nack", nack)
    got = receive(client, leaseMs=1000)
    courier.pass_ms(1001)
    got = receive(client)
    post(client, "/v1/nack", {"receiver": got["receiver"], "ids": ["a"], "mode": "reject"})
    post(client, "/v1/streams/redrive", {"stream": INBOX})
    kept = get(client, "/v1/envelope", stream=INBOX, id="a")
    assert kept["state"] == "ready"
    assert [attempt["outcome"] for attempt in kept["history"]] == [
        "failed",
        "lease_expired",
        "rejected",
    ]
    assert kept["history"][0]["error"] == "first"
    assert kept["history"][0]["at"].endswith("Z")


def test_peek_after_a_removed_envelope_is_404(client):
    for id_ in "abcd":
        enqueue(client, id_)
    page = get(client, "/v1/peek", stream=INBOX, limit=2)
    got = receive(client)
    last = page["envelopes"][-1]["id"]
    post(client, "/v1/ack", {"receiver": got["receiver"], "ids": [last]})
    answer = get(client, "/v1/peek", 404, stream=INBOX, limit=2, after=last)
    assert answer["details"]["field"] == "after"


def test_history_counts_toward_the_bytes_of_a_page(monkeypatch):
    monkeypatch.setattr("appliance.courier.admin.DELIVERY_BYTES_MAX", 10_000)
    courier = CourierFixture(backoff_seconds=0.0)
    client = courier.client()
    for id_ in "abcde":
        enqueue(client, id_)
    for _ in range(5):
        got = receive(client)
        ids = [delivery["deliver"]["id"] for delivery in got["deliveries"]]
        assert sorted(ids) == list("abcde")
        error = {"receiver": got["receiver"], "ids": ids, "error": "e" * 900}
        post(client, "/v1/nack", error)
        courier.pass_ms(1000)
    pages = peeked(client, 10_000)
    assert sorted(id_ for page in pages for id_ in page) == list("abcde")
    assert len(pages) > 1


def test_large_purge_counts_removed_envelopes(courier, client):
    for start in range(0, 3000, 1000):
        courier.put(INBOX, *(f"e{number}" for number in range(start, start + 1000)))
    receive(client)
    answer = post(client, "/v1/streams/purge", {"stream": INBOX, "limit": 2500})
    assert (answer["count"], len(answer["ids"])) == (2500, 1000)
    stats = get(client, "/v1/stats", stream=INBOX)
    assert (stats["ready"], stats["inflight"], stats["dropped"]) == (490, 10, {"purged": 2500})


def test_facts_for_the_doctor():
    courier = CourierFixture(depth_max=10, streams=[{"pattern": "quiet/*", "depth_max": 100}])
    client = courier.client()
    for number in range(9):
        enqueue(client, f"e{number}")
    enqueue(client, "q", to="quiet/a")
    post(client, "/v1/streams/pause", {"stream": "quiet/a"})
    courier.clock.tick(5000)
    facts = courier.admin.facts()
    assert facts["streams"] == 2
    assert (facts["full"], facts["paused"], facts["memory_envelopes"]) == (1, 1, 10)
    assert (facts["memory_parked"], facts["oldest_ready_seconds"]) == (2, 5.0)
