"""Delivering: leases, acks, priorities, connections that come and go, and nobody held up."""

import pytest

from appliance.broker import service, wire
from appliance.kernel.errors import Unavailable
from tests.support.broker import key


def test_every_subscriber_gets_a_message_once_and_its_row_goes(broker):
    bert, cleo = broker.connect("bert"), broker.connect("cleo")
    broker.send("m1")
    assert bert.receive() == ["hello"]
    assert cleo.receive() == ["hello"]
    assert broker.count("delivery_queue") == 0
    assert bert.receive() == ["hello"]


def test_late_ack_does_not_ack_a_delivery_leased_by_another_connection(broker):
    broker.registry.change_mesh("lab", wire.ChangeMesh(concurrency="allow_concurrent"))
    first = broker.connect("bert")
    broker.send("m1", to="bert")
    broker.deliver()
    claims = list(first.connection._claims)
    first.connection._claims.clear()
    broker.clock.pass_seconds(31)
    second = broker.connect("bert", lambda pushes: [])
    broker.service.dispatch._with_demand.pop(first.connection._connection, None)
    broker.service.expire_leases()
    broker.service.dispatch._with_demand.pop(first.connection._connection, None)
    broker.deliver()
    assert second.connection._claims
    first.connection._claims = claims
    first.connection.run_once(0)
    broker.deliver()
    assert broker.count("delivery_queue") == 1
    second.connection.stop()
    first.connection.stop()


def test_ids_rise_above_stored_ids_after_clock_change(new_broker):
    broker = new_broker()
    _, first = broker.send("m1")
    broker.clock.pass_seconds(-3600)
    restarted = new_broker(clock=broker.clock)
    _, second = restarted.send("m2")
    assert second["history_id"] > first["history_id"]


# -- order, priority, windows ------------------------------------------------------------


def test_urgent_before_ordinary_before_low_and_each_in_order(broker):
    for number, priority in enumerate(["low", "next", "now", "next", "low", "now"]):
        broker.send(f"m{number}", f"{priority} {number}", to="bert", priority=priority)
    assert broker.connect("bert").receive() == [
        "now 2",
        "now 5",
        "next 1",
        "next 3",
        "low 0",
        "low 4",
    ]


def test_connection_has_at_most_its_window_of_unacked_deliveries(new_broker, monkeypatch):
    monkeypatch.setattr(service, "WINDOW_MAX", 3)
    broker = new_broker()
    bert = broker.connect("bert")
    for number in range(10):
        broker.send(f"m{number}", str(number), to="bert")
    broker.deliver()
    assert len(bert.connection._claims) == 3
    broker.deliver()
    assert len(bert.connection._claims) == 3
    for _ in range(4):
        bert.receive()
    assert bert.bodies == [str(number) for number in range(10)]


def test_slow_member_does_not_delay_the_others(new_broker, monkeypatch):
    monkeypatch.setattr(service, "WINDOW_MAX", 2)
    monkeypatch.setattr(service, "CLAIM_MAX", 5)
    broker = new_broker()
    broker.connect("bert", lambda pushes: [])  # never reads
    cleo = broker.connect("cleo")
    for number in range(20):
        broker.send(f"m{number}", str(number))
    for _ in range(12):
        cleo.receive()
    assert cleo.bodies == [str(number) for number in range(20)]
    assert broker.count("delivery_queue") == 20


def test_failing_callback_gets_the_message_again_when_its_lease_has_expired(broker):
    attempts = []

    def fail_once(pushes):
        attempts.append([push.body for push in pushes])
        if len(attempts) == 1:
            raise Unavailable("the inbox is full")

    bert = broker.connect("bert", fail_once)
    broker.send("m1", to="bert")
    with pytest.raises(Unavailable):
        bert.receive()
    bert.receive()
    assert len(attempts) == 1
    broker.clock.pass_seconds(31)
    broker.lease_expiry.run_once(broker.clock.now_ms())
    bert.receive()
    assert attempts == [["hello"]] * 2
    assert broker.count("delivery_queue") == 0


# -- queues ------------------------------------------------------------------------------


def test_consumer_that_subscribes_while_connected_gets_what_waits(broker):
    cleo = broker.connect("cleo")
    broker.send("m1", queue="jobs")
    assert cleo.receive() == []
    broker.registry.subscribe("lab", "queue", "jobs", "cleo")
    assert cleo.receive() == ["hello"]


# -- two connections of a member ---------------------------------------------------------


def test_allow_concurrent_keeps_both_and_a_message_goes_to_one(broker):
    broker.registry.change_mesh("lab", wire.ChangeMesh(concurrency="allow_concurrent"))
    first, second = broker.connect("bert"), broker.connect("bert")
    broker.send("m1", to="bert")
    assert sorted(first.receive() + second.receive()) == ["hello"]


def test_members_receive_only_their_own_messages(broker):
    """An earlier implementation had one inbox for several sessions, and messages leaked."""
    bert, cleo = broker.connect("bert"), broker.connect("cleo")
    broker.send("m1", "for bert", to="bert")
    broker.send("m2", "for cleo", to="cleo")
    assert bert.receive() == ["for bert"]
    assert cleo.receive() == ["for cleo"]


# -- members that change -----------------------------------------------------------------


def test_peers_receive_join_and_leave_events(broker):
    bert, cleo = broker.connect("bert"), broker.connect("cleo")
    cleo.connection.stop()
    presence = [(event["event"], event["member"]) for event in bert.events]
    assert presence == [("peer_join", key("cleo")), ("peer_leave", key("cleo"))]


def test_member_with_new_key_gets_deliveries_in_flight(broker):
    from appliance.mesh.signing import rotation_text, sign
    from tests.support.broker import seed

    broker.send("m1", "before", to="bert")
    proof = sign(seed("bert2"), rotation_text("lab", key("bert"), key("bert2")))
    broker.registry.rotate_member("lab", "bert", wire.RotateMember(key("bert2"), proof))
    broker.send("m2", "to the old key", to="bert")
    broker.send("m3", "into a topic")
    bert = broker.connect("bert2")
    assert bert.receive() == ["before", "to the old key", "into a topic"]
    assert broker.send("m4", sender="bert")[1]["code"] == "MEMBER_REVOKED"


def test_new_key_without_proof_is_refused(broker):
    with pytest.raises(wire.BadSignature):
        broker.registry.rotate_member("lab", "bert", wire.RotateMember(key("x"), "0" * 128))
    with pytest.raises(wire.MemberTaken):
        broker.registry.add_member("lab", wire.AddMember(key("anna"), "other"))
