"""What operators ask of the courier, in the corners: counts, pages and views that are true."""

import json

import pytest

from tests.http.test_courier import bury, enqueue, get, post, receive
from tests.support.courier import INBOX, House, envelope


@pytest.fixture
def house():
    return House()


@pytest.fixture
def client(house):
    return house.client()


def test_a_redrive_beside_another_counts_its_own(house, client):
    bury(house, client, *(f"d{number}" for number in range(30)))
    post(client, "/v1/streams/redrive", {"stream": INBOX, "rate": 1})
    enqueue(client, "lone", to="other")
    got = receive(client, "other")
    nack = {"receiver": got["receiver"], "ids": ["lone"], "mode": "reject"}
    post(client, "/v1/nack", nack)
    answer = post(client, "/v1/streams/redrive", {"stream": "other", "rate": 1})
    assert (answer["count"], answer["remaining"]) == (1, 0)


@pytest.mark.parametrize("limits", [{"depth_max": 3}, {"depth_max": 9, "bytes_max": 500}])
def test_nothing_is_dropped_for_what_would_not_fit_even_then(limits):
    house = House(full="drop_oldest", **limits)
    client = house.client()
    bury(house, client, "dead", payload="x" * 100)
    for id_ in "ab":
        enqueue(client, id_)
    batch = [envelope(f"n{number}") for number in range(4)]
    post(client, "/v1/enqueue/batch", {"to": INBOX, "envelopes": batch}, 429)
    stats = get(client, "/v1/stats", stream=INBOX)
    assert (stats["ready"], stats["dropped"]) == (2, {})


def test_a_duplicate_in_a_batch_is_not_the_latest():
    client = House().client()
    enqueue(client, "old")
    batch = [envelope("new"), envelope("old", type="other"), envelope("new", type="other")]
    post(client, "/v1/enqueue/batch", {"to": INBOX, "envelopes": batch})
    (row,) = get(client, "/v1/snapshot")["rows"]
    assert (row["env"]["id"], row["env"]["type"]) == ("new", "t")


def test_a_snapshot_says_when_it_is_not_all(client):
    for name in "abc":
        enqueue(client, "e", to=f"agents/{name}/inbox")
    assert get(client, "/v1/snapshot", limit=3)["has_more"] is False
    page = get(client, "/v1/snapshot", limit=2)
    assert (len(page["rows"]), page["has_more"]) == (2, True)


def test_a_snapshot_of_large_envelopes_is_limited_in_bytes_and_goes_on():
    client = House(delivery_bytes_max=50_000).client()
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


def test_inflight_shows_the_end_of_a_lease_that_was_extended(client):
    enqueue(client, "a")
    got = receive(client, leaseMs=1000)
    before = get(client, "/v1/snapshot", view="inflight")
    extended = {"receiver": got["receiver"], "ids": ["a"], "leaseMs": 60_000}
    post(client, "/v1/extend", extended)
    after = get(client, "/v1/snapshot", view="inflight")
    until = get(client, "/v1/envelope", stream=INBOX, id="a")["dueAt"]
    assert before["rows"][0]["env"]["until"] < after["rows"][0]["env"]["until"] == until
    assert get(client, "/v1/snapshot", view="inflight")["watermark"] == after["watermark"]


def test_a_page_behind_an_envelope_that_is_gone_is_no_silent_end(client):
    for id_ in "abcd":
        enqueue(client, id_)
    page = get(client, "/v1/peek", stream=INBOX, limit=2)
    got = receive(client)
    last = page["envelopes"][-1]["id"]
    post(client, "/v1/ack", {"receiver": got["receiver"], "ids": [last]})
    answer = get(client, "/v1/peek", 404, stream=INBOX, limit=2, after=last)
    assert answer["details"]["field"] == "after"


def test_counters_do_not_fall_when_a_stream_is_forgotten():
    streams = [{"pattern": "orders/*"}]
    house = House(streams=streams, idle_seconds=1.0, recent_seconds=1.0)
    client = house.client()
    enqueue(client, "a", to="orders/eu")
    got = receive(client, "orders/eu")
    post(client, "/v1/ack", {"receiver": got["receiver"], "ids": ["a"]})

    def counted():
        text = client.simulate_get("/v1/metrics", headers={"Accept": "text/plain"}).text
        wanted = ("_acked_total{", "_delivery_seconds_count{", "_enqueued_total{")
        return sorted(line for line in text.splitlines() if any(name in line for name in wanted))

    before = counted()
    for _ in range(5):
        house.pass_ms(1000)
    get(client, "/v1/stats", 404, stream="orders/eu")
    assert counted() == before
    assert 'agentlip_courier_acked_total{pattern="orders/*"} 1.0' in before


def compact(answer):
    """Its bytes on the wire."""
    return len(json.dumps(answer, separators=(",", ":"), ensure_ascii=False))


def peeked(client, limit):
    """The ids on each page of a stream that is looked through."""
    pages, after = [], {}
    while True:
        page = get(client, "/v1/peek", stream=INBOX, **after)
        assert compact(page) <= limit
        pages.append([one["id"] for one in page["envelopes"]])
        if not page["has_more"]:
            return pages
        after = {"after": pages[-1][-1]}


def test_a_page_of_large_envelopes_ends_earlier_and_says_so():
    client = House(delivery_bytes_max=3000).client()
    for id_ in "abcde":
        enqueue(client, id_, payload="x" * 400)
    pages = peeked(client, 3000)
    assert [id_ for page in pages for id_ in page] == list("abcde")
    assert len(pages) > 1


def test_the_history_of_an_envelope_counts_as_bytes_of_its_page():
    house = House(delivery_bytes_max=10_000, backoff_ms=0)
    client = house.client()
    for id_ in "abcde":
        enqueue(client, id_)
    for _ in range(5):
        got = receive(client)
        ids = [one["deliver"]["id"] for one in got["deliveries"]]
        assert sorted(ids) == list("abcde")
        error = {"receiver": got["receiver"], "ids": ids, "error": "e" * 900}
        post(client, "/v1/nack", error)
        house.pass_ms(1000)
    pages = peeked(client, 10_000)
    assert sorted(id_ for page in pages for id_ in page) == list("abcde")
    assert len(pages) > 1


def test_leases_with_long_names_are_limited_in_bytes():
    """Stream and id stand in the address of such a row, and in the row again."""
    client = House(delivery_bytes_max=10_000).client()
    stream = "s" * 256
    for number in range(20):
        enqueue(client, f"{number:02}" + "i" * 190, to=stream)
    receive(client, stream, max=20)
    found, query, pages = [], {}, 0
    while True:
        page = get(client, "/v1/snapshot", view="inflight", **query)
        assert compact(page) <= 10_000
        found, pages = found + [row["addr"] for row in page["rows"]], pages + 1
        if not page["has_more"]:
            break
        query = {"after": found[-1]}
    assert found == sorted(set(found))
    assert (len(found), pages > 1) == (20, True)


def test_a_purge_of_many_counts_what_it_removed(house, client):
    for start in range(0, 3000, 1000):
        house.put(INBOX, *(f"e{number}" for number in range(start, start + 1000)))
    receive(client)
    answer = post(client, "/v1/streams/purge", {"stream": INBOX, "limit": 2500})
    assert (answer["count"], len(answer["ids"])) == (2500, 1000)
    stats = get(client, "/v1/stats", stream=INBOX)
    assert (stats["ready"], stats["inflight"], stats["dropped"]) == (490, 10, {"purged": 2500})
