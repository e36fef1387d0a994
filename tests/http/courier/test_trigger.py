"""Triggers of enqueued envelopes."""

import pytest

from appliance.courier.enqueue import EnqueuePipeline
from appliance.kernel.errors import Unavailable
from tests.support.courier import (
    INBOX,
    CourierFixture,
)
from tests.support.courier_http import enqueue, get, receive

WEBHOOK = {
    "id": "hook",
    "when": {"type": "order.paid"},
    "do": [{"action": "webhook", "to": "https://shop.example/", "payload": {"id": "${env.id}"}}],
}


TEMPLATED = {
    "id": "forward",
    "when": {"type": "ask"},
    "do": [{"action": "notify", "to": "${env.from}"}, {"action": "route", "to": "${env.payload}"}],
}


def test_triggers_notify_enrich_and_never_fail_the_enqueue():
    courier = CourierFixture(
        triggers=[
            {
                "id": "log",
                "when": {"type": "sprint.log"},
                "do": [
                    {"action": "enrich", "headers": {"seen": True}, "payload": {"more": 2}},
                    {"action": "notify", "to": "agents/architect/inbox"},
                    {"action": "webhook", "to": "https://nowhere.invalid/"},
                ],
            },
            {"id": "loop", "when": {"to": "loop"}, "do": [{"action": "route", "to": "loop2"}]},
            {"id": "pool", "when": {"to": "loop2"}, "do": [{"action": "route", "to": "loop"}]},
        ]
    )
    client = courier.client()
    enqueue(client, "a", type="sprint.log")
    enqueue(client, "a", type="sprint.log")
    enriched = receive(client)["deliveries"][0]["deliver"]
    assert (enriched["headers"], enriched["payload"]) == ({"seen": True}, {"n": 1, "more": 2})
    notices = receive(client, "agents/architect/inbox")["deliveries"]
    assert len(notices) == 1
    assert notices[0]["deliver"]["payload"]["ref"] == "a"
    enqueue(client, "b", to="loop")
    assert get(client, "/v1/stats", stream="loop2")["depth"] == 1
    row = get(client, "/v1/rules")["rules"][0]
    assert (row["fired"], row["failed"]) == (0, 1)  # without an outbox, its webhook fails


def test_failing_webhook_pauses_the_rule_but_not_the_enqueue():
    def refuse(*_):
        raise Unavailable("the outbox is full")

    courier = CourierFixture(triggers=[WEBHOOK], webhooks=refuse)
    for number in range(7):
        enqueue(courier.client(), f"e{number}", type="order.paid")
    row = get(courier.client(), "/v1/rules")["rules"][0]
    assert row["failed"] == 5, "the rule is paused after too many failures"
    assert row["fired"] == 0


def test_failed_firing_begins_no_cooldown():
    """Or the next envelope would not reach a receiver that works again."""
    broken, sent = [Unavailable("the outbox is full")], []

    def send(*arguments):
        if broken:
            raise broken.pop()
        sent.append(arguments)

    courier = CourierFixture(
        triggers=[{**WEBHOOK, "limits": {"cooldownMs": 60_000}}], webhooks=send
    )
    for number in range(3):
        enqueue(courier.client(), f"e{number}", type="order.paid")
    row = get(courier.client(), "/v1/rules")["rules"][0]
    assert (row["failed"], row["fired"], row["suppressed"]) == (1, 1, 1)
    assert len(sent) == 1


def test_rule_has_not_fired_if_its_envelope_was_not_stored(monkeypatch):
    sent = []
    courier = CourierFixture(
        triggers=[{**WEBHOOK, "limits": {"cooldownMs": 60_000}}],
        webhooks=lambda *arguments: sent.append(arguments),
    )

    def refuse(*_):
        raise Unavailable("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(EnqueuePipeline, "_put", refuse)
        with pytest.raises(AssertionError, match="the disk is full"):
            enqueue(courier.client(), "e1", type="order.paid")
    enqueue(courier.client(), "e1", type="order.paid")
    row = get(courier.client(), "/v1/rules")["rules"][0]
    assert (row["failed"], row["fired"], len(sent)) == (1, 1, 1)


@pytest.mark.parametrize("name", ["", "a*b", "a\nb", "x" * 250, None])
def test_trigger_with_invalid_target_name_creates_no_stream(name):
    courier = CourierFixture(triggers=[TEMPLATED])
    client = courier.client()
    sender = name if name is None or len(name) < 250 else "x" * 250 + "/" * 6
    for number in range(6):
        enqueue(client, f"e{number}", type="ask", **{"from": sender}, payload=name or {"a": 1})
    streams = [row["id"] for row in get(client, "/v1/stats")["streams"]]
    assert set(streams) <= {INBOX, "x" * 250}
    enqueue(client, "good", type="ask", **{"from": "agents/Bo"}, payload="agents/Bo/too")
    for stream in ("agents/Bo", "agents/Bo/too"):
        assert get(client, "/v1/stats", stream=stream)["depth"] == 1
