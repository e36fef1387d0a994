"""Retention: messages go and their ids say so, ids go when it is time, nothing is orphaned."""

from appliance.broker import wire

DAY_SECONDS = 86_400


def keep(broker, mode="retention_scoped", dedupe=14, messages=7):
    broker.registry.change_mesh("lab", wire.ChangeMesh(mode, dedupe, messages))


def prune(broker):
    return broker.pruner.prune()


def test_removed_message_leaves_its_id_which_says_so(broker):
    keep(broker)
    _, first = broker.send("m1", meta={"mentions": ["bert"]})
    broker.clock.pass_seconds(7 * DAY_SECONDS)
    assert prune(broker) == {"messages": 0, "ids": 0}
    broker.clock.pass_seconds(1)
    assert prune(broker) == {"messages": 1, "ids": 0}
    counts = broker.counts()
    assert (counts.pop("client_message_dedupe"), any(counts.values())) == (1, False)
    assert broker.count("message_tombstone") == 1
    assert broker.orphans() == []
    status, repeated = broker.send("m1", meta={"mentions": ["bert"]})
    assert (status, repeated["history_available"]) == (200, False)
    assert repeated["broker_message_id"] == first["broker_message_id"]
    assert broker.send("m1", "else")[0] == 409


def test_permanent_ids_are_never_pruned(broker):
    keep(broker, "permanent")
    broker.send("m1")
    broker.clock.pass_seconds(3_000 * DAY_SECONDS)
    assert prune(broker) == {"messages": 1, "ids": 0}
    assert broker.send("m1")[0] == 200


def test_id_with_a_delivery_outstanding_is_not_pruned(broker):
    """Else the orphan check would call a legal setting a fault."""
    keep(broker, dedupe=7, messages=30)
    broker.send("m1", to="bert")
    broker.clock.pass_seconds(8 * DAY_SECONDS)
    assert prune(broker) == {"messages": 0, "ids": 0}
    assert broker.orphans() == []
    broker.connect("bert").receive()
    assert prune(broker) == {"messages": 0, "ids": 1}


def test_pruner_runs_once_a_day_also_across_restarts(new_broker):
    broker = new_broker()
    keep(broker)
    broker.send("m1")
    assert broker.pruner.run_once(broker.clock.now_ms()) == {"messages": 0, "ids": 0}
    assert broker.rows("SELECT value FROM meta WHERE key = 'pruned_ms'") != []
    broker.clock.pass_seconds(8 * DAY_SECONDS)
    repeated = new_broker(clock=broker.clock)
    assert repeated.pruner.run_once(broker.clock.now_ms())["messages"] == 1
    repeated.send("m2")
    broker.clock.pass_seconds(DAY_SECONDS - 1)
    assert repeated.pruner.run_once(broker.clock.now_ms()) == {"messages": 0, "ids": 0}
