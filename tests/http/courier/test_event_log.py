"""The log of every step of an envelope."""

from tests.support.courier import CourierFixture
from tests.support.courier_http import enqueue, post, receive


def test_event_log_has_every_step_of_an_envelope():
    rule = {"id": "r", "when": {"type": "t"}, "do": [{"action": "emit", "name": "seen"}]}
    courier = CourierFixture(event_log=True, triggers=[rule])
    client = courier.client()
    enqueue(client, "a")
    courier.clock.tick(7)
    got = receive(client, leaseMs=100)
    courier.pass_ms(101)
    got = receive(client)
    post(client, "/v1/ack", {"receiver": got["receiver"], "ids": ["a"]})
    events = [entry for entry in courier.lines.entries() if entry.get("event")]
    names = [event["event"] for event in events]
    assert names == ["enqueue", "trigger.run", "deliver", "timeout", "deliver", "ack"]
    assert (events[1]["rule"], events[1]["source_id"]) == ("r", "a")
    assert (events[2]["ids"], events[2]["ms"]) == (["a"], [7.0])
    assert events[3]["ids"] == events[5]["ids"] == ["a"]
