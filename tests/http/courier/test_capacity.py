"""Limits of streams, memory and rates over HTTP."""

import pytest

from tests.support.courier import (
    INBOX,
    CourierFixture,
    envelope,
)
from tests.support.courier_http import dead_letter, enqueue, get, post, receive


def test_full_stream_refuses_with_retry_after():
    courier = CourierFixture(depth_max=2)
    client = courier.client()
    enqueue(client, "a")
    enqueue(client, "b")
    result = client.simulate_post("/v1/enqueue", json={"to": INBOX, "envelope": envelope("c")})
    assert result.status_code == 429
    assert result.headers["Retry-After"] == "1"
    assert result.json["code"] == "STREAM_FULL"
    assert enqueue(client, "a")["duplicate"] is True


def test_full_stream_drops_the_oldest_with_drop_oldest():
    courier = CourierFixture(depth_max=2, overflow_policy="drop_oldest")
    client = courier.client()
    for id_ in "abc":
        enqueue(client, id_)
    assert [delivery["deliver"]["id"] for delivery in receive(client)["deliveries"]] == ["b", "c"]
    assert get(client, "/v1/stats", stream=INBOX)["dropped"] == {"full": 1}


def test_bytes_of_all_streams_are_limited(monkeypatch):
    monkeypatch.setattr("appliance.courier.envelope.BYTES_MAX", 500)
    courier = CourierFixture(bytes_total_max=1000)
    client = courier.client()
    big = "x" * 300
    enqueue(client, "a", payload=big)
    enqueue(client, "b", payload=big)
    assert enqueue(client, "c", payload=big, status=429)["code"] == "COURIER_FULL"
    assert enqueue(client, "d", payload="x" * 600, status=400)["code"] == "PAYLOAD_TOO_LARGE"


def test_rates_are_limited_for_tokens_and_streams():
    courier = CourierFixture(rate_per_stream=2.0)
    client = courier.client()
    enqueue(client, "a")
    enqueue(client, "b")
    assert enqueue(client, "c", status=429)["details"]["scope"] == "stream"
    courier.clock.tick(1000)
    enqueue(client, "c")
    courier = CourierFixture(rate_per_token=1.0)
    client = courier.client()
    enqueue(client, "a")
    assert enqueue(client, "b", to="other", status=429)["details"]["scope"] == "token"


@pytest.mark.parametrize("limits", [{"depth_max": 3}, {"depth_max": 9, "bytes_max": 500}])
def test_nothing_is_dropped_for_a_batch_that_would_not_fit_anyway(limits):
    courier = CourierFixture(overflow_policy="drop_oldest", **limits)
    client = courier.client()
    dead_letter(courier, client, "dead", payload="x" * 100)
    for id_ in "ab":
        enqueue(client, id_)
    batch = [envelope(f"n{number}") for number in range(4)]
    post(client, "/v1/enqueue/batch", {"to": INBOX, "envelopes": batch}, 429)
    stats = get(client, "/v1/stats", stream=INBOX)
    assert (stats["ready"], stats["dropped"]) == (2, {})
