"""The delivery loop."""

from appliance.outbox.loops import IDLE_SECONDS, Drain

HOUR = 3600


def test_drain_interval_is_longer_while_nothing_is_pending(outbox):
    drain = Drain(outbox.service, outbox.sender)
    drain.run_once(outbox.clock.now_ms())
    assert drain.interval_seconds == IDLE_SECONDS
    outbox.broker.reply_lost = lambda _item: True
    outbox.send(key="k1")
    drain.run_once(outbox.clock.now_ms())
    assert outbox.row("k1").status == "pending"
    assert drain.interval_seconds == outbox.settings.poll_seconds
