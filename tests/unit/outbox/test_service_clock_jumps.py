"""Clock changes while sends are pending: none is delayed, and none expires early."""

import pytest

HOUR_MS = 3_600_000


DAY_MS = 24 * HOUR_MS


JUMPS = [-30 * DAY_MS, -HOUR_MS, HOUR_MS, 30 * DAY_MS, 20_000 * DAY_MS]


def lose_acks(outbox, lost=True):
    outbox.broker.reply_lost = lambda _item: lost


def times(outbox):
    """Age and wait of each send."""
    sql = "SELECT client_message_id, accepted_steady_ms, next_attempt_at FROM outbox"
    now = outbox.service.steady.now_ms()
    return {id_: (accepted - now, due - now) for id_, accepted, due in outbox.rows(sql)}


def round_and_prune(outbox):
    outbox.round()
    outbox.pruner.run_once(outbox.clock.now_ms())


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_clock_jump_does_not_delay_delivery(outbox, jump_ms):
    lose_acks(outbox)
    outbox.send(key="k1")
    outbox.round()
    outbox.clock.ms += jump_ms
    lose_acks(outbox, lost=False)
    outbox.clock.pass_seconds(1)
    round_and_prune(outbox)
    assert outbox.row("k1").status == "done"


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_send_expires_by_age_despite_clock_jumps(outbox, jump_ms):
    lose_acks(outbox)
    hours = outbox.service.max_age_hours("default")
    outbox.send(key="before")
    outbox.clock.pass_seconds(3600)
    outbox.clock.ms += jump_ms
    outbox.send(key="after")
    outbox.clock.pass_seconds(3600 * (hours - 2))
    outbox.pruner.run_once(outbox.clock.now_ms())
    assert outbox.statuses() == {"before": "pending", "after": "pending"}
    outbox.clock.pass_seconds(3600)
    outbox.pruner.run_once(outbox.clock.now_ms())
    assert outbox.statuses() == {"before": "dead", "after": "pending"}
    outbox.clock.pass_seconds(3600)
    outbox.pruner.run_once(outbox.clock.now_ms())
    assert outbox.statuses() == {"before": "dead", "after": "dead"}


@pytest.mark.parametrize("jump_ms", [-30 * DAY_MS, 30 * DAY_MS])
def test_a_jump_while_the_appliance_is_stopped_is_noticed_at_the_start(outbox, jump_ms):
    lose_acks(outbox)
    outbox.send(key="k1")
    outbox.round()
    outbox.pruner.run_once(outbox.clock.now_ms())
    before = times(outbox)
    outbox.clock.ms += jump_ms
    outbox.reopen()
    assert times(outbox) == before
    assert outbox.service.steady.last_jump[0] == jump_ms


def test_time_that_passes_while_the_appliance_is_stopped_counts(outbox):
    lose_acks(outbox)
    outbox.send(key="k1")
    outbox.pruner.run_once(outbox.clock.now_ms())
    outbox.clock.pass_seconds(3600)
    outbox.reopen()
    assert times(outbox)["k1"] == (-HOUR_MS, -HOUR_MS)
    assert outbox.service.steady.last_jump == (0, None)
