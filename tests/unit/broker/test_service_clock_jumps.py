"""The clock is set, forward and back, while the broker holds messages: none waits, none goes."""

import pytest

from appliance.broker import wire

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
DAY_SECONDS = 86_400
JUMPS = [-30 * DAY_MS, -HOUR_MS, HOUR_MS, 30 * DAY_MS, 20_000 * DAY_MS]


@pytest.fixture(params=["running", "restarted"])
def go_on(request, new_broker):
    """The same broker, or the one after a restart."""
    restarted = request.param == "restarted"
    return lambda broker: new_broker(clock=broker.clock) if restarted else broker


def round_of_loops(broker):
    now_ms = broker.clock.now_ms()
    broker.deliverer.run_once(now_ms)
    broker.lease_expiry.run_once(now_ms)
    broker.pruner.run_once(now_ms)
    broker.service.steady.note()


# -- leases ----------------------------------------------------------------------------------


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_a_lease_ends_when_it_would_have(broker, jump_ms):
    broker.connect("bert", lambda pushes: [])
    broker.send("m1", to="bert")
    broker.deliver()
    broker.clock.pass_seconds(20)
    broker.clock.ms += jump_ms
    assert broker.lease_expiry.run_once(broker.clock.now_ms()) == {"expired": 0}
    broker.clock.pass_seconds(11)
    assert broker.lease_expiry.run_once(broker.clock.now_ms()) == {"expired": 1}


# -- ages ------------------------------------------------------------------------------------


def keep(broker):
    broker.registry.change_mesh("lab", wire.ChangeMesh("retention_scoped", 14, 7))


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_messages_and_ids_go_at_their_age_and_not_by_the_clock(broker, go_on, jump_ms):
    keep(broker)
    broker.send("before")
    round_of_loops(broker)
    broker.clock.pass_seconds(DAY_SECONDS)
    broker.clock.ms += jump_ms
    broker = go_on(broker)
    broker.send("after")

    def after(days):
        broker.clock.pass_seconds(days * DAY_SECONDS + 1)
        pruned = broker.pruner.prune()
        return pruned["messages"], pruned["ids"]

    assert after(5) == (0, 0)
    assert after(1) == (1, 0)
    assert after(1) == (1, 0)
    assert after(5) == (0, 0)
    assert broker.send("before")[0] == broker.send("after")[0] == 200
    assert after(1) == (0, 1)
    assert after(1) == (0, 1)
