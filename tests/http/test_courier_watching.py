"""The courier's triggers, views, log and advert over HTTP."""

import json

import pytest

from appliance.courier import wire
from appliance.courier.live import Live, LiveStream
from appliance.courier.trigger import NO_OUTBOX, check
from appliance.kernel.errors import Unavailable
from tests.http.test_courier import enqueue, get, post, receive
from tests.support.courier import ANYBODY, INBOX, House, envelope, settings_of


@pytest.fixture
def house():
    return House()


@pytest.fixture
def client(house):
    return house.client()


def test_triggers_notify_enrich_and_never_fail_the_enqueue():
    house = House(
        triggers=[
            {
                "id": "log",
                "when": {"type": "sprint.log"},
                "do": [
                    {"action": "enrich", "headers": {"seen": True}},
                    {"action": "notify", "to": "agents/architect/inbox"},
                    {"action": "webhook", "to": "https://nowhere.invalid/"},
                ],
            },
            {"id": "loop", "when": {"to": "loop"}, "do": [{"action": "route", "to": "loop2"}]},
            {"id": "pool", "when": {"to": "loop2"}, "do": [{"action": "route", "to": "loop"}]},
        ]
    )
    client = house.client()
    enqueue(client, "a", type="sprint.log")
    enqueue(client, "a", type="sprint.log")
    assert receive(client)["deliveries"][0]["deliver"]["headers"] == {"seen": True}
    notices = receive(client, "agents/architect/inbox")["deliveries"]
    assert len(notices) == 1
    assert notices[0]["deliver"]["payload"]["ref"] == "a"
    enqueue(client, "b", to="loop")
    assert get(client, "/v1/stats", stream="loop2")["depth"] == 1
    verdicts = post(
        client, "/v1/rules/dry-run", {"to": INBOX, "envelope": envelope("x", type="sprint.log")}
    )
    assert verdicts["fires"] == ["log"]
    assert get(client, "/v1/rules")["rules"][0]["fired"] == 1


WEBHOOK = {
    "id": "hook",
    "when": {"type": "order.paid"},
    "do": [{"action": "webhook", "to": "https://shop.example/", "payload": {"id": "${env.id}"}}],
}


def test_a_webhook_is_handed_to_the_outbox_under_a_key_of_its_own():
    handed = []
    house = House(triggers=[WEBHOOK], sink=lambda *said: handed.append(said))
    enqueue(house.client(), "a", type="order.paid")
    ((to, key, payload),) = handed
    assert (to, key) == ("https://shop.example/", "courier-hook-a")
    assert payload == {"ref": "a", "stream": INBOX, "id": "a"}


def test_a_webhook_that_cannot_be_handed_over_fails_no_insert_and_the_rule_rests():
    def refuse(*_):
        raise Unavailable("the outbox is full")

    house = House(triggers=[WEBHOOK], sink=refuse)
    for number in range(5):
        enqueue(house.client(), f"e{number}", type="order.paid")
    tried = {"to": INBOX, "envelope": envelope("x", type="order.paid")}
    verdict = post(house.client(), "/v1/rules/dry-run", tried)["rules"][0]
    assert (verdict["fires"], verdict["why"]) == (False, "it failed too often and rests")


def test_a_webhook_rule_is_refused_where_nothing_could_send_it():
    rules = settings_of(triggers=[WEBHOOK]).triggers
    assert check(rules, webhooks=True) == []
    assert check(rules, webhooks=False) == [f"hook: {NO_OUTBOX}"]


def test_the_event_log_tells_the_life_of_an_envelope():
    rule = {"id": "r", "when": {"type": "t"}, "do": [{"action": "emit", "name": "seen"}]}
    house = House(event_log=True, triggers=[rule])
    client = house.client()
    enqueue(client, "a")
    house.clock.tick(7)
    got = receive(client, leaseMs=100)
    house.pass_ms(101)
    got = receive(client)
    post(client, "/v1/ack", {"receiver": got["receiver"], "ids": ["a"]})
    events = [one for one in house.lines.entries() if one.get("event")]
    names = [one["event"] for one in events]
    assert names == ["enqueue", "trigger.run", "deliver", "timeout", "deliver", "ack"]
    assert (events[1]["rule"], events[1]["source_id"]) == ("r", "a")
    assert (events[2]["ids"], events[2]["ms"]) == (["a"], [7.0])
    assert events[3]["ids"] == events[5]["ids"] == ["a"]


def test_what_the_doctor_is_told_of_the_streams():
    house = House(depth_max=10, streams=[{"pattern": "quiet/*", "depth_max": 100}])
    client = house.client()
    for number in range(9):
        enqueue(client, f"e{number}")
    enqueue(client, "q", to="quiet/a")
    post(client, "/v1/streams/pause", {"stream": "quiet/a"})
    house.clock.tick(5000)
    facts = house.operator.facts()
    assert facts["streams"] == 2
    assert (facts["full"], facts["paused"], facts["memory_envelopes"]) == (1, 1, 10)
    assert (facts["memory_parked"], facts["oldest_ready_seconds"]) == (2, 5.0)


def test_a_trigger_that_multiplies_is_bounded():
    do = [{"action": "notify", "to": "s"} for _ in range(8)]
    house = House(triggers=[{"id": "r", "when": {"to": "s"}, "do": do}], derived_max=50)
    enqueue(house.client(), "a", to="s")
    assert get(house.client(), "/v1/stats", stream="s")["depth"] == 51


def test_a_hostess_can_register_what_is_advertised(client):
    enqueue(client, "a")
    advert = get(client, "/v1/advertise")
    hostess = advert["hostess"]
    assert advert["identity"].split(":")[1] == hostess["servername"] == "courier"
    assert advert["identity"].endswith(hostess["uuid"])
    assert advert["kernel"]["capabilities"]["accepts"] == ["envelope"]
    assert hostess["metadata"]["streams"] == 1
    assert advert["endpoint"]["metadata"]["stats"] == "/v1/stats"


def test_live_view_starts_with_a_watermark_and_tells_changes(house, client):
    enqueue(client, "a")
    stream = LiveStream(Live(house.courier, ANYBODY, wire.LiveQuery(snapshot=True)))
    pieces = iter(stream)
    first = next(pieces)
    assert json.loads(first.removeprefix(b"data: "))["connected"] is True
    assert b'"op":"add"' in next(pieces)
    enqueue(client, "b")
    told = json.loads(next(pieces).removeprefix(b"data: "))
    assert (told["addr"], told["env"]["id"], told["op"]) == (INBOX, "b", "update")
    stream.close()


TEMPLATED = {
    "id": "forward",
    "when": {"type": "ask"},
    "do": [{"action": "notify", "to": "${env.from}"}, {"action": "route", "to": "${env.payload}"}],
}


@pytest.mark.parametrize("name", ["", "*", "a*b", "/a", "a/", "a//b", "a\nb", "x" * 250, None])
def test_an_envelope_cannot_have_a_trigger_make_a_stream_without_a_name(name):
    house = House(triggers=[TEMPLATED])
    client = house.client()
    sender = name if name is None or len(name) < 250 else "x" * 250 + "/" * 6
    for number in range(6):
        enqueue(client, f"e{number}", type="ask", **{"from": sender}, payload=name or {"a": 1})
    streams = [one["id"] for one in get(client, "/v1/stats")["streams"]]
    assert set(streams) <= {INBOX, "x" * 250}
    enqueue(client, "good", type="ask", **{"from": "agents/Bo"}, payload="agents/Bo/too")
    for stream in ("agents/Bo", "agents/Bo/too"):
        assert get(client, "/v1/stats", stream=stream)["depth"] == 1


def test_an_id_as_long_as_ids_may_be_is_notified_like_any_other():
    house = House(triggers=[{**TEMPLATED, "do": TEMPLATED["do"][:1]}])
    client = house.client()
    ids = [f"{number}".rjust(200, "i") for number in range(7)]
    for id_ in ids:
        enqueue(client, id_, type="ask", **{"from": "agents/Bo"})
    told = [one["deliver"] for one in receive(client, "agents/Bo")["deliveries"]]
    assert [one["payload"]["ref"] for one in told] == ids
    assert len({one["id"] for one in told}) == 7
