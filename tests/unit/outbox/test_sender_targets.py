"""Delivery by other targets than brokers."""

import pytest

from appliance.outbox.settings import OrderedDestination
from appliance.outbox.target import Delivered, DeliveryTarget, RetryLater


class ScriptedResults(DeliveryTarget):
    """A target that returns scripted results, one send at a time."""

    def __init__(self, name, result_of):
        self.name = name
        self.say = result_of
        self.sent = []

    def deliver(self, send):
        self.sent.append(send)
        return self.say(send)


def test_sends_of_a_missing_target_stay_pending(outbox):
    outbox.targets["pigeon"] = ScriptedResults("pigeon", lambda _send: Delivered())
    outbox.send(key="k1", target="pigeon")
    del outbox.targets["pigeon"]
    outbox.send(key="k2")
    outbox.round()
    assert outbox.statuses() == {"k1": "pending", "k2": "done"}


@pytest.mark.parametrize("failures", [[RetryLater("away")], []])
def test_ordered_sends_are_delivered_one_after_another_up_to_a_failed_one(new_outbox, failures):
    """Whether the target returns the failure or raises."""
    outbox = new_outbox(in_order=(OrderedDestination(),))
    results = iter([Delivered(), *failures])
    outbox.targets["pigeon"] = pigeon = ScriptedResults("pigeon", lambda _send: next(results))
    for key in ("k1", "k2", "k3"):
        outbox.send(key, key=key, target="pigeon")
    for _ in range(2):
        outbox.round()
        assert [send.body for send in pigeon.sent] == ["k1", "k2"]
    assert [outbox.row(key).attempts for key in ("k1", "k2", "k3")] == [0, 1, 0]
    pigeon.say = lambda _send: Delivered()
    outbox.clock.pass_seconds(31)
    outbox.round()
    assert [send.body for send in pigeon.sent[2:]] == ["k2", "k3"]
