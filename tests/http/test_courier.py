"""The courier over HTTP: the specification's shapes, and the life of an envelope beyond them."""

import pytest

from appliance.courier.resources import routes
from appliance.courier.settings import CourierSettings, TokenSettings
from appliance.courier.subsystem import free_scopes
from appliance.kernel.clock import iso
from appliance.web import openapi
from appliance.web.guard import FREE_ON_LOOPBACK
from tests.support.courier import INBOX, SCOPED_TOKEN, House, envelope
from tests.support.http import NARROW_TOKEN, TOKEN


def post(client, path, body, status=200):
    result = client.simulate_post(path, json=body)
    assert result.status_code == status, result.text
    return result.json


def get(client, path, status=200, **params):
    result = client.simulate_get(path, params=params)
    assert result.status_code == status, result.text
    return result.json


TOKENS = CourierSettings(tokens=(TokenSettings("file", ["streams:*:admin"]),))


@pytest.fixture
def house():
    return House()


@pytest.fixture
def client(house):
    return house.client()


def test_the_document_says_that_changes_need_no_token_on_loopback():
    """Until tokens are configured: who reads it must not rely on one being asked for."""
    for settings, needed in ((CourierSettings(), [{"bearer": []}, {}]), (TOKENS, [{"bearer": []}])):
        described = routes(None, None, None, "optional")
        paths = openapi.document(described, FREE_ON_LOOPBACK | free_scopes(settings))["paths"]
        assert paths["/v1/enqueue"]["post"]["security"] == needed
        assert paths["/v1/streams/purge"]["post"]["security"] == needed


def enqueue(client, id_, to=INBOX, status=200, **more):
    return post(client, "/v1/enqueue", {"to": to, "envelope": envelope(id_, **more)}, status)


def receive(client, stream=INBOX, **more):
    return post(client, "/v1/receive", {"stream": stream, "max": 10, **more})


def test_enqueue_answers_the_id_and_fills_in_to(client):
    assert enqueue(client, "e-1") == {"id": "e-1", "boot_id": "boot-1"}
    (delivered,) = receive(client)["deliveries"]
    assert delivered["deliver"] == {**envelope("e-1"), "to": INBOX}


def test_what_we_do_not_know_travels_untouched(client):
    odd = {"custom": {"deep": [1, 2.5, None]}, "schema": "x@v1", "version": 1, "to": INBOX}
    enqueue(client, "e-1", **odd)
    assert receive(client)["deliveries"][0]["deliver"] == {**envelope("e-1"), **odd}


def test_the_outer_to_decides(client):
    told = envelope("e-1", to="elsewhere")
    post(client, "/v1/enqueue", {"to": INBOX, "envelope": told})
    assert receive(client)["deliveries"][0]["deliver"]["to"] == INBOX


@pytest.mark.parametrize("missing", ["id", "ts", "type", "payload"])
def test_required_fields_are_named(client, missing):
    body = envelope("e-1")
    del body[missing]
    answer = post(client, "/v1/enqueue", {"to": INBOX, "envelope": body}, 400)
    assert answer["details"]["field"] == f"envelope.{missing}"
    assert answer["code"] == "INVALID_ENVELOPE"


@pytest.mark.parametrize(
    ("field", "value"),
    [("id", ""), ("id", 7), ("id", "a\nb"), ("priority", 10), ("delayMs", -1), ("tags", "x")],
)
def test_wrong_fields_are_named(client, field, value):
    answer = enqueue(client, **{"id_": "e", field: value} if field != "id" else {"id_": value},
                     status=400)  # fmt: skip
    assert answer["details"]["field"].startswith(f"envelope.{field}")


def test_nul_beside_a_number_that_nobody_can_hold_is_told_as_bad_json(client):
    text = '{"to":"a","envelope":{"id":"a","ts":"x","type":"t","payload":[1e400,"\\u0000"]}}'
    headers = {"Content-Type": "application/json"}
    result = client.simulate_post("/v1/enqueue", body=text, headers=headers)
    assert (result.status_code, result.json["code"]) == (400, "INVALID_INPUT")


@pytest.mark.parametrize("name", ["a*b", "a//b", "/a", "a/", "a\nb"])
def test_a_stream_needs_a_plain_name(client, name):
    enqueue(client, "e", to=name, status=400)


def test_a_batch_is_all_or_nothing_and_names_the_place(client):
    good, bad = envelope("a"), {"id": "b"}
    answer = post(client, "/v1/enqueue/batch", {"to": INBOX, "envelopes": [good, bad]}, 400)
    assert answer["details"]["field"].startswith("envelopes[1]")
    answer = post(client, "/v1/enqueue/batch", {"to": INBOX, "envelopes": [good, envelope("b")]})
    assert answer["ids"] == ["a", "b"]
    assert get(client, "/v1/stats", stream=INBOX)["depth"] == 2


def test_a_duplicate_is_answered_alike_and_not_queued(client):
    enqueue(client, "e-1")
    assert enqueue(client, "e-1")["duplicate"] is True
    got = receive(client)
    assert len(got["deliveries"]) == 1
    post(client, "/v1/ack", {"receiver": got["receiver"], "ids": ["e-1"]})
    assert enqueue(client, "e-1")["id"] == "e-1"
    stats = get(client, "/v1/stats", stream=INBOX)
    assert (stats["depth"], stats["duplicates"], stats["acked"]) == (0, 2, 1)


def test_stats_of_a_stream_never_seen_is_404(client):
    assert get(client, "/v1/stats", 404, stream="nobody")["code"] == "UNKNOWN_STREAM"


def test_stats_have_the_specifications_fields(client):
    enqueue(client, "e-1")
    stats = get(client, "/v1/stats", stream=INBOX)
    for name in ("depth", "inflight", "rateIn", "rateOut", "latP50", "latP95", "lastTs"):
        assert name in stats
    assert stats["lastTs"].endswith("Z")
    everything = get(client, "/v1/metrics")
    assert everything["streams"][0]["id"] == INBOX
    assert everything["streams"][0]["stats"]["depth"] == 1


def test_metrics_are_text_for_who_asks_for_text(client):
    enqueue(client, "e-1")
    result = client.simulate_get("/v1/metrics", headers={"Accept": "text/plain"})
    assert "agentlip_courier_enqueued_total" in result.text
    assert "agentlip_courier_oldest_ready_seconds" in result.text
    assert "agentlip_courier_triggers_total" in result.text
    assert "agentlip_loop_rounds_total" not in result.text  # who may see streams sees no more
    assert INBOX not in result.text


def test_double_and_foreign_acks_are_409(client):
    enqueue(client, "e-1")
    got = receive(client)
    ack = {"receiver": got["receiver"], "ids": ["e-1"]}
    assert post(client, "/v1/ack", ack)["done"] == ["e-1"]
    assert post(client, "/v1/ack", ack, 409)["code"] == "LEASE_LOST"
    enqueue(client, "e-2")
    receive(client)
    post(client, "/v1/ack", {"receiver": got["receiver"], "ids": ["e-2"]}, 409)


def test_a_lease_ends_and_a_late_ack_is_409(house, client):
    enqueue(client, "e-1")
    first = receive(client, leaseMs=1000)
    assert house.pass_ms(1001)["lease_expired"] == 1
    second = receive(client)
    assert second["deliveries"][0]["attempt"] == 2
    post(client, "/v1/ack", {"receiver": first["receiver"], "ids": ["e-1"]}, 409)
    post(client, "/v1/ack", {"receiver": second["receiver"], "ids": ["e-1"]})


def test_an_extended_lease_lives_longer(house, client):
    enqueue(client, "e-1")
    got = receive(client, leaseMs=1000)
    house.pass_ms(900)
    post(client, "/v1/extend", {"receiver": got["receiver"], "ids": ["e-1"], "leaseMs": 5000})
    assert house.pass_ms(4000)["lease_expired"] == 0
    assert house.pass_ms(1001)["lease_expired"] == 1


def test_a_delayed_nack_comes_back_later(house, client):
    enqueue(client, "e-1")
    got = receive(client)
    post(client, "/v1/nack", {"receiver": got["receiver"], "ids": ["e-1"], "delayMs": 500})
    assert receive(client)["deliveries"] == []
    house.pass_ms(501)
    assert len(receive(client)["deliveries"]) == 1


def test_release_is_not_counted_fail_is_and_reject_is_final():
    house = House(deliveries_max=2, backoff_ms=0)
    client = house.client()
    enqueue(client, "e-1")
    for mode in ("release", "release", "release", "fail"):
        got = receive(client)
        post(client, "/v1/nack", {"receiver": got["receiver"], "ids": ["e-1"], "mode": mode})
    assert get(client, "/v1/stats", stream=INBOX)["ready"] == 1
    got = receive(client)
    post(client, "/v1/nack", {"receiver": got["receiver"], "ids": ["e-1"], "error": "no luck"})
    (letter,) = get(client, "/v1/peek", stream=INBOX, state="dead")["envelopes"]
    assert (letter["reason"], letter["error"], letter["attempts"]) == (
        "max_deliveries",
        "no luck",
        2,
    )
    enqueue(client, "e-2")
    got = receive(client)
    post(client, "/v1/nack", {"receiver": got["receiver"], "ids": ["e-2"], "mode": "reject"})
    reasons = [
        one["reason"] for one in get(client, "/v1/peek", stream=INBOX, state="dead")["envelopes"]
    ]
    assert reasons == ["max_deliveries", "rejected"]


def bury(house, client, *ids, **more):
    for id_ in ids:
        enqueue(client, id_, **more)
        got = receive(client)
        post(client, "/v1/nack", {"receiver": got["receiver"], "ids": [id_], "mode": "reject"})


def test_dead_letters_are_redriven_by_id_or_filter_and_dry_run_moves_nothing(house, client):
    bury(house, client, "a", "b")
    bury(house, client, "c", type="other")
    dry = post(client, "/v1/streams/redrive", {"stream": INBOX, "type": "other", "dryRun": True})
    assert (dry["count"], dry["ids"], dry["dryRun"]) == (1, ["c"], True)
    assert get(client, "/v1/stats", stream=INBOX)["dead"] == 3
    assert post(client, "/v1/streams/redrive", {"stream": INBOX, "ids": ["b"]})["count"] == 1
    assert [one["deliver"]["id"] for one in receive(client)["deliveries"]] == ["b"]


def test_a_redrive_at_a_rate_takes_its_time(house, client):
    bury(house, client, *(f"d{number}" for number in range(30)))
    answer = post(client, "/v1/streams/redrive", {"stream": INBOX, "rate": 10})
    assert answer["count"] + answer["remaining"] == 30
    assert answer["remaining"] >= 20
    house.pass_ms(1000)
    middle = get(client, "/v1/stats", stream=INBOX)["ready"]
    assert 10 <= middle <= 25
    for _ in range(5):
        house.pass_ms(1000)
    assert get(client, "/v1/stats", stream=INBOX)["ready"] == 30


def test_purge_counts_first_and_leaves_leases_alone(house, client):
    for id_ in "abc":
        enqueue(client, id_)
    post(client, "/v1/receive", {"stream": INBOX, "max": 1})
    assert post(client, "/v1/streams/purge", {"stream": INBOX, "dryRun": True})["count"] == 2
    assert post(client, "/v1/streams/purge", {"stream": INBOX})["ids"] == ["b", "c"]
    stats = get(client, "/v1/stats", stream=INBOX)
    assert (stats["depth"], stats["inflight"], stats["dropped"]) == (1, 1, {"purged": 2})


def test_a_paused_stream_takes_and_does_not_give(house, client):
    post(client, "/v1/streams/pause", {"stream": INBOX})
    enqueue(client, "a")
    assert receive(client)["deliveries"] == []
    assert get(client, "/v1/stats", stream=INBOX)["paused"] is True
    post(client, "/v1/streams/resume", {"stream": INBOX})
    assert len(receive(client)["deliveries"]) == 1


def test_a_pause_until_ends_by_itself(house, client):
    answer = post(client, "/v1/streams/pause", {"stream": INBOX, "seconds": 2})
    assert answer["until"].endswith("Z")
    enqueue(client, "a")
    house.pass_ms(1999)
    assert receive(client)["deliveries"] == []
    house.pass_ms(2)
    assert len(receive(client)["deliveries"]) == 1


def test_a_pause_until_a_time_of_the_clock(house, client):
    def paused(status=200, **more):
        return post(client, "/v1/streams/pause", {"stream": INBOX, **more}, status)

    then = iso(house.clock.now_ms() + 5000)
    assert paused(until=then)["until"] == then
    assert paused(until=then.replace("Z", "+00:00"))["until"] == then
    assert paused(until=then.removesuffix("Z"))["until"] == then
    enqueue(client, "a")
    house.pass_ms(4999)
    assert receive(client)["deliveries"] == []
    house.pass_ms(2)
    assert len(receive(client)["deliveries"]) == 1
    for wrong in ({"until": then}, {"until": "9999-12-31T23:59:59Z"}, {"until": "soon"}):
        assert paused(400, **wrong)["details"]["field"] == "until"
    later = iso(house.clock.now_ms() + 5000)
    assert paused(400, until=later, seconds=5)["details"]["field"] == "until"


def test_time_to_live_ends_as_a_drop_or_a_dead_letter():
    for action, key in (("drop", "dropped"), ("dead", "dead")):
        house = House(ttl_action=action)
        client = house.client()
        enqueue(client, "a", ttlMs=100)
        enqueue(client, "b")
        house.pass_ms(101)
        stats = get(client, "/v1/stats", stream=INBOX)
        assert stats["ready"] == 1
        assert stats[key] == ({"expired": 1} if action == "drop" else 1)


def test_delay_priority_and_partition_key(house, client):
    enqueue(client, "later", delayMs=1000)
    enqueue(client, "low", priority=1)
    enqueue(client, "high", priority=9)
    enqueue(client, "k1", partitionKey="k")
    enqueue(client, "k2", partitionKey="k")
    got = [one["deliver"]["id"] for one in receive(client)["deliveries"]]
    assert got == ["high", "k1", "low"]
    house.pass_ms(1001)
    assert [one["deliver"]["id"] for one in receive(client)["deliveries"]] == ["later"]


def test_a_full_stream_refuses_with_a_time_to_come_back():
    house = House(depth_max=2)
    client = house.client()
    enqueue(client, "a")
    enqueue(client, "b")
    result = client.simulate_post("/v1/enqueue", json={"to": INBOX, "envelope": envelope("c")})
    assert result.status_code == 429
    assert result.headers["Retry-After"] == "1"
    assert result.json["code"] == "STREAM_FULL"
    assert enqueue(client, "a")["duplicate"] is True


def test_a_full_stream_drops_its_oldest_when_told_so():
    house = House(depth_max=2, full="drop_oldest")
    client = house.client()
    for id_ in "abc":
        enqueue(client, id_)
    assert [one["deliver"]["id"] for one in receive(client)["deliveries"]] == ["b", "c"]
    assert get(client, "/v1/stats", stream=INBOX)["dropped"] == {"full": 1}


def test_bytes_are_limited_as_well():
    house = House(bytes_total_max=1000, envelope_bytes_max=500)
    client = house.client()
    big = "x" * 300
    enqueue(client, "a", payload=big)
    enqueue(client, "b", payload=big)
    assert enqueue(client, "c", payload=big, status=429)["code"] == "COURIER_FULL"
    assert enqueue(client, "d", payload="x" * 600, status=400)["code"] == "PAYLOAD_TOO_LARGE"


def test_rates_are_limited_for_tokens_and_streams():
    house = House(rate_per_stream=2.0)
    client = house.client()
    enqueue(client, "a")
    enqueue(client, "b")
    assert enqueue(client, "c", status=429)["details"]["scope"] == "stream"
    house.clock.tick(1000)
    enqueue(client, "c")
    house = House(rate_per_token=1.0)
    client = house.client()
    enqueue(client, "a")
    assert enqueue(client, "b", to="other", status=429)["details"]["scope"] == "token"


def test_the_most_specific_pattern_decides_about_a_stream():
    rows = [{"pattern": "agents/*", "depth_max": 1}, {"pattern": INBOX, "depth_max": 3}]
    house = House(streams=rows)
    client = house.client()
    for id_ in "abc":
        enqueue(client, id_)
    enqueue(client, "a", to="agents/Bo/inbox")
    enqueue(client, "b", to="agents/Bo/inbox", status=429)


def test_with_fixed_streams_others_are_404():
    house = House(fixed=True, streams=[{"pattern": "agents/*"}])
    enqueue(house.client(), "a")
    assert enqueue(house.client(), "a", to="other", status=404)["code"] == "UNKNOWN_STREAM"


def test_snapshot_has_the_last_envelope_of_each_inbox(client):
    enqueue(client, "a")
    enqueue(client, "b")
    enqueue(client, "c", to="agents/Bo/outbox")
    answer = get(client, "/v1/snapshot", view="latestPerAgent")
    assert [(row["addr"], row["env"]["id"]) for row in answer["rows"]] == [(INBOX, "b")]
    assert answer["watermark"] == 2
    assert answer["boot_id"] == "boot-1"
    assert get(client, "/v1/snapshot", 404, view="nothing")["code"] == "UNKNOWN_VIEW"


def test_inflight_shows_who_holds_what(client):
    enqueue(client, "a")
    receive(client)
    (row,) = get(client, "/v1/snapshot", view="inflight")["rows"]
    assert row["addr"] == f"{INBOX}#a"
    assert row["env"]["holder"] == "anonymous"


def test_one_envelope_can_be_looked_at_in_every_state(house, client):
    enqueue(client, "a")
    assert get(client, "/v1/envelope", stream=INBOX, id="a")["state"] == "ready"
    receive(client)
    kept = get(client, "/v1/envelope", stream=INBOX, id="a")
    assert (kept["state"], kept["holder"]) == ("leased", "anonymous")
    get(client, "/v1/envelope", 404, stream=INBOX, id="b")


def test_peek_goes_page_by_page(client):
    for id_ in "abcde":
        enqueue(client, id_)
    page = get(client, "/v1/peek", stream=INBOX, limit=3)
    assert [one["id"] for one in page["envelopes"]] == ["a", "b", "c"]
    assert page["has_more"]
    page = get(client, "/v1/peek", stream=INBOX, limit=3, after="c")
    assert [one["id"] for one in page["envelopes"]] == ["d", "e"]
    assert get(client, "/v1/stats", stream=INBOX)["ready"] == 5


def test_attempts_that_failed_are_told_and_a_redrive_does_not_erase_them(house, client):
    enqueue(client, "a")
    got = receive(client)
    nack = {"receiver": got["receiver"], "ids": ["a"], "error": "first"}
    post(client, "/v1/nack", nack)
    got = receive(client, leaseMs=1000)
    house.pass_ms(1001)
    got = receive(client)
    post(client, "/v1/nack", {"receiver": got["receiver"], "ids": ["a"], "mode": "reject"})
    post(client, "/v1/streams/redrive", {"stream": INBOX})
    kept = get(client, "/v1/envelope", stream=INBOX, id="a")
    assert kept["state"] == "ready"
    assert [one["outcome"] for one in kept["history"]] == ["failed", "lease_expired", "rejected"]
    assert kept["history"][0]["error"] == "first"
    assert kept["history"][0]["at"].endswith("Z")


def test_scopes_are_asked_for_each_stream(house):
    jen = house.client(SCOPED_TOKEN)
    enqueue(jen, "a")
    assert enqueue(jen, "a", to="agents/Bo/inbox", status=403)["details"]["scope"] == (
        "streams:agents/Bo/inbox:enqueue"
    )
    assert len(receive(jen, "agents/*/inbox")["deliveries"]) == 1
    post(jen, "/v1/receive", {"stream": "*"}, 403)
    post(jen, "/v1/streams/pause", {"stream": INBOX}, 403)
    get(jen, "/v1/snapshot", 403, view="latestPerAgent")
    get(jen, "/v1/rules", 403)
    assert get(house.client(TOKEN), "/v1/rules") == {"rules": []}
    assert post(house.client(TOKEN), "/v1/streams/pause", {"stream": INBOX})["paused"]
    assert [one["id"] for one in get(jen, "/v1/stats")["streams"]] == [INBOX]


def test_somebody_elses_receiver_is_nobodys(house):
    enqueue(house.client(), "a")
    got = receive(house.client())
    ack = {"receiver": got["receiver"], "ids": ["a"]}
    post(house.client(SCOPED_TOKEN), "/v1/ack", ack, 409)
    post(house.client(), "/v1/ack", ack)


def test_loopback_is_free_until_tokens_are_configured(house, tmp_path):
    file = tmp_path / "token"
    file.write_text("secret")
    row = {"token_file": str(file), "scopes": ["streams:*:enqueue"]}
    enqueue(House(tokens=[row]).client(), "a", status=401)
    enqueue(house.client(address="192.0.2.7"), "a", status=401)
    enqueue(house.client(TOKEN, address="192.0.2.7"), "a")
    assert house.client(NARROW_TOKEN).simulate_get("/v1/stats").status_code == 401
