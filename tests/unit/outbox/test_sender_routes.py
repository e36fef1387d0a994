"""Batches, and routes that are slow or broken."""

from appliance.outbox import sender, wire
from tests.support.fake_broker import always
from tests.support.outbox import with_paused_pool


def test_batches_have_at_most_two_hundred_sends(outbox):
    outbox.service.send_many([wire.Send("#a", str(number)) for number in range(450)])
    assert outbox.round() == {"claimed": 450}
    assert outbox.target.batches == [200, 200, 50]
    assert outbox.broker.bodies == [str(number) for number in range(450)]


def test_a_request_has_a_limit_in_bytes_and_one_send_always_fits(new_outbox, monkeypatch):
    monkeypatch.setattr(sender, "DELIVER_BYTES_MAX", 1000)
    outbox = new_outbox()
    for size in (400, 400, 400, 5000, 100):
        outbox.send("x" * size)
    outbox.round()
    assert outbox.target.batches == [2, 1, 1, 1]


def test_unreachable_broker_is_probed_until_it_works(outbox):
    outbox.broker.fault = always(503)
    for number in range(50):
        outbox.send(key=f"k{number}")
    for _ in range(5):
        outbox.round()
        outbox.clock.pass_seconds(31)
    requests_before = len(outbox.broker.received_ids)
    outbox.round()
    assert len(outbox.broker.received_ids) - requests_before <= sender.PROBE_SENDS_MAX
    outbox.round()
    assert len(outbox.broker.received_ids) - requests_before <= sender.PROBE_SENDS_MAX
    assert outbox.service.state().open_routes == ["broker:default"]
    outbox.broker.fault = lambda _item: None
    outbox.clock.pass_seconds(60)
    outbox.round()
    outbox.round()
    assert set(outbox.statuses().values()) == {"done"}
    assert outbox.service.state().open_routes == []


def test_a_poisoned_send_does_not_starve_the_others(outbox):
    outbox.broker.fault = lambda item: (
        (500, {"error": "crash"}, None) if item["body"] == "poison" else None
    )
    outbox.send("poison", key="poison")
    for number in range(20):
        outbox.round()
        outbox.send(key=f"k{number}")
        outbox.clock.pass_seconds(31)
    outbox.round()
    statuses = outbox.statuses()
    assert statuses.pop("poison") == "pending"
    assert set(statuses.values()) == {"done"}


def test_slow_routes_get_at_most_half_of_the_pool(new_outbox, monkeypatch):
    monkeypatch.setattr("appliance.outbox.sender.DELIVER_MAX", 1)
    monkeypatch.setattr("appliance.outbox.routes.DELIVERIES_MAX", 8)
    outbox, pool = with_paused_pool(new_outbox, size=8)

    def slow(_item):
        outbox.clock.pass_seconds(3)

    outbox.broker.fault = slow
    for mesh in range(20):
        for number in range(5):
            outbox.send(key=f"{mesh}/{number}", mesh=f"slow{mesh}")
    for _ in range(30):  # until each is known to be slow
        outbox.round()
        while pool.work:
            pool.finish()
    for mesh in range(20):
        for number in range(5):
            outbox.send(key=f"{mesh}/again{number}", mesh=f"slow{mesh}")
    outbox.round()
    assert len(pool.work) == 4
    outbox.send(key="quick", mesh="quick")
    outbox.round()
    assert len(pool.work) == 5
    pool.finish(4)
    assert outbox.row("quick").status == "done"
