"""Sends that a restored broker has lost: found by comparison, and sent again."""

import pytest

from appliance.kernel.errors import Invalid
from appliance.outbox import loops, wire, writes
from appliance.outbox.loops import BrokerComparison

HOUR = 3600


def test_comparison_with_a_restored_broker_begins_again_if_it_was_stopped(outbox, monkeypatch):
    monkeypatch.setattr(loops, "COMPARE_ROWS", 2)
    outbox.send("too old", key="k0")
    outbox.round()
    outbox.clock.pass_seconds(outbox.service.max_age_hours("default") * HOUR + 1)
    for number in range(1, 6):
        outbox.send(key=f"k{number}")
        outbox.round()
    asked, answers = [], [["k1"], None, [], ["k5"]]

    def unknown(mesh, ids):
        asked.append(list(ids))
        return answers.pop(0)

    outbox.target.unknown = unknown
    comparison = BrokerComparison(outbox.service)
    outbox.service.set_epoch("default", "e1")
    now_ms = outbox.clock.now_ms()
    assert comparison.run_once(now_ms) == {"lost": 1}
    assert comparison.run_once(now_ms) == {"lost": 1}
    assert comparison.run_once(now_ms) == {"lost": 0}, "once for each epoch"
    assert asked == [["k1", "k2"], ["k3", "k4"], ["k2", "k3"], ["k4", "k5"]]
    assert BrokerComparison(outbox.service).run_once(now_ms) == {"lost": 0}, "after a restart too"
    assert outbox.service.state().lost == 2


def test_lost_sends_are_sent_again_as_they_were(outbox):
    for key in ("k1", "k2"):
        outbox.send(key=key)
    outbox.round()
    before = outbox.row("k1")
    outbox.store.write(writes.mark_lost, [before.id, outbox.row("k2").id])
    outbox.set("k2", "dead", payload=b"", payload_dropped_at=outbox.clock.now_ms())
    with pytest.raises(Invalid):
        outbox.admin.redrive(wire.Redrive(lost=True, auto=True))
    (planned,) = outbox.admin.redrive(wire.Redrive(lost=True, dry_run=True)).redriven
    (done,) = outbox.admin.redrive(wire.Redrive(lost=True)).redriven
    assert (planned.id, planned.new_id) == (before.id, None)
    assert (done.new_id, done.new_client_message_id) == (before.id, "k1")
    outbox.round()
    assert outbox.row("k1").broker_message_id == before.broker_message_id, "it is the same send"
    assert outbox.statuses() == {"k1": "done", "k2": "dead"}
