"""Delivering: leases, acks, priorities, connections that come and go, and nobody held up."""

import sqlite3

import pytest

from appliance.broker import wire
from appliance.broker.dispatch import AlreadyConnected
from appliance.kernel.batch import BatchRunner
from appliance.kernel.errors import Unavailable
from tests.support.broker import House, key


@pytest.fixture
def house(tmp_path):
    house = House(tmp_path)
    yield house
    assert house.orphans() == []
    house.close()


def test_every_subscriber_gets_a_message_once_and_its_row_goes(house):
    bert, cleo = house.connect("bert"), house.connect("cleo")
    _, sent = house.send("m1", meta={"a": 1}, priority="now", reply_to_id="r1")
    assert bert.turn() == ["hello"]
    assert cleo.turn() == ["hello"]
    assert bert.got[0] == wire.Push(
        message_id=sent["broker_message_id"],
        client_message_id="m1",
        mesh="lab",
        topic="alerts",
        destination_kind="topic",
        destination_ref="alerts",
        sender_pubkey=key("anna"),
        sender_name="anna",
        priority="now",
        meta={"a": 1},
        body="hello",
        reply_to_id="r1",
        created_at="2026-02-02T02:40:00.000Z",
    )
    assert house.count("delivery_queue") == 0
    assert bert.turn() == ["hello"]


def test_what_was_sent_while_nobody_was_there_is_delivered_on_connecting(house):
    house.send("m1", to="bert")
    assert house.connect("bert").turn() == ["hello"]


def test_what_was_committed_and_not_told_is_found_by_looking_again(house, monkeypatch):
    """As when the writer's process dies between its commit and its answer."""
    bert, woken = house.connect("bert"), []
    assert bert.turn() == []
    monkeypatch.setattr(house.broker.dispatch, "wake_hooks", lambda: woken.append("hooks"))
    monkeypatch.setattr(house.store, "_publish", lambda items: None)
    house.send("m1", to="bert")
    assert bert.turn() == []
    house.broker.dispatch.look_again()
    assert (bert.turn(), woken) == (["hello"], ["hooks"])


def test_claim_without_an_ack_is_delivered_again_after_its_lease(house):
    """An earlier implementation noted the delivery before the push, and lost it."""
    lost = house.connect("bert", lambda pushes: [])
    house.send("m1", to="bert")
    house.deliver()
    assert house.rows("SELECT lease_owner IS NOT NULL, attempts FROM delivery_queue") == [(1, 1)]
    lost.link._out.clear()  # the push never left
    house.clock.pass_seconds(29)
    assert house.sweeper.run_once(house.clock.now_ms()) == {"expired": 0}
    house.clock.pass_seconds(2)
    assert house.sweeper.run_once(house.clock.now_ms()) == {"expired": 1}
    lost.link.stop()
    bert = house.connect("bert")
    assert bert.turn() == ["hello"]


def test_connection_that_ends_gives_back_at_once_what_it_held(house):
    first = house.connect("bert", lambda pushes: [])
    house.send("m1", to="bert")
    house.deliver()
    first.link.stop()
    assert house.rows("SELECT lease_owner FROM delivery_queue") == [(None,)]
    assert house.connect("bert").turn() == ["hello"]


def test_ack_that_comes_after_the_lease_still_counts(house):
    slow = house.connect("bert")
    house.send("m1", to="bert")
    house.deliver()
    slow.house.clock.pass_seconds(31)
    house.broker.expire_leases()
    slow.house.broker.dispatch._hungry.clear()
    slow.link.run_once(0)
    house.deliver()
    assert slow.bodies == ["hello"]
    assert house.count("delivery_queue") == 0


def test_ack_that_could_not_be_written_is_written_later(tmp_path):
    class Failing(BatchRunner):
        broken = False

        def commit(self):
            if Failing.broken:
                raise sqlite3.OperationalError("not now")
            super().commit()

    house = House(tmp_path, runner=Failing)
    bert = house.connect("bert")
    house.send("m1", to="bert")
    house.deliver()
    bert.link.run_once(0)
    Failing.broken = True
    with pytest.raises(sqlite3.OperationalError):
        house.deliver()
    Failing.broken = False
    house.deliver()
    assert bert.bodies == ["hello"]
    assert house.count("delivery_queue") == 0
    house.close()


def test_late_ack_does_not_take_what_another_connection_holds(house):
    house.registry.change_mesh("lab", wire.ChangeMesh(concurrency="allow_concurrent"))
    first = house.connect("bert")
    house.send("m1", to="bert")
    house.deliver()
    held = list(first.link._out)
    first.link._out.clear()
    house.clock.pass_seconds(31)
    second = house.connect("bert", lambda pushes: [])
    house.broker.dispatch._hungry.pop(first.link._receiver, None)
    house.broker.expire_leases()
    house.broker.dispatch._hungry.pop(first.link._receiver, None)
    house.deliver()
    assert second.link._out
    first.link._out = held
    first.link.run_once(0)
    house.deliver()
    assert house.count("delivery_queue") == 1
    second.link.stop()
    first.link.stop()


def test_restarted_broker_delivers_what_was_leased(tmp_path):
    house = House(tmp_path)
    house.connect("bert", lambda pushes: [])
    house.send("m1", to="bert")
    house.deliver()
    house.close()
    again = House(tmp_path, clock=house.clock)
    assert again.connect("bert").turn() == ["hello"]
    again.close()


def test_ids_go_on_above_those_that_are_stored_when_the_clock_went_back(tmp_path):
    house = House(tmp_path)
    _, first = house.send("m1")
    house.close()
    house.clock.pass_seconds(-3600)
    again = House(tmp_path, clock=house.clock)
    _, second = again.send("m2")
    assert second["history_id"] > first["history_id"]
    again.close()


# -- order, priority, windows ------------------------------------------------------------


def test_urgent_before_ordinary_before_low_and_each_in_order(house):
    for number, priority in enumerate(["low", "next", "now", "next", "low", "now"]):
        house.send(f"m{number}", f"{priority} {number}", to="bert", priority=priority)
    assert house.connect("bert").turn() == [
        "now 2",
        "now 5",
        "next 1",
        "next 3",
        "low 0",
        "low 4",
    ]


def test_busy_receiver_gets_only_what_is_urgent_until_it_is_idle(house):
    bert = house.connect("bert")
    bert.link.set_status("working")
    house.send("m1", "later", to="bert")
    house.send("m2", "now", to="bert", priority="now")
    assert bert.turn() == ["now"]
    bert.link.set_status("idle")
    assert bert.turn() == ["now", "later"]


def test_receiver_holds_no_more_than_its_window(tmp_path):
    house = House(tmp_path, window_max=3)
    bert = house.connect("bert")
    for number in range(10):
        house.send(f"m{number}", str(number), to="bert")
    house.deliver()
    assert len(bert.link._out) == 3
    house.deliver()
    assert len(bert.link._out) == 3
    for _ in range(4):
        bert.turn()
    assert bert.bodies == [str(number) for number in range(10)]
    house.close()


def test_slow_receiver_does_not_hold_up_the_others(tmp_path):
    house = House(tmp_path, window_max=2, claim_max=5)
    house.connect("bert", lambda pushes: [])  # never reads
    cleo = house.connect("cleo")
    for number in range(20):
        house.send(f"m{number}", str(number))
    for _ in range(12):
        cleo.turn()
    assert cleo.bodies == [str(number) for number in range(20)]
    assert house.count("delivery_queue") == 20
    house.close()


def test_receiver_that_fails_gets_it_again_after_a_pause(house):
    tries = []

    def fail_twice(pushes):
        tries.append([push.body for push in pushes])
        if len(tries) <= 2:
            raise Unavailable("the inbox is full")

    bert = house.connect("bert", fail_twice)
    house.send("m1", to="bert")
    bert.turn()
    bert.turn()
    assert len(tries) == 1
    house.clock.pass_seconds(1)
    house.broker.dispatch.feed_all()
    bert.turn()
    house.clock.pass_seconds(2)
    house.broker.dispatch.feed_all()
    bert.turn()
    assert tries == [["hello"]] * 3
    assert house.count("delivery_queue") == 0


def test_receiver_acks_only_what_it_says_it_has(house):
    bert = house.connect("bert", lambda pushes: [pushes[0].message_id])
    for number in range(3):
        house.send(f"m{number}", str(number), to="bert")
    bert.turn()
    assert house.count("delivery_queue") == 2


# -- queues ------------------------------------------------------------------------------


def test_one_consumer_of_a_queue_gets_each_message(house):
    house.registry.subscribe("lab", "queue", "jobs", "cleo")
    bert, cleo = house.connect("bert"), house.connect("cleo")
    for number in range(6):
        house.send(f"m{number}", str(number), queue="jobs")
    bert.turn()
    cleo.turn()
    assert sorted(bert.bodies + cleo.bodies) == [str(number) for number in range(6)]


def test_consumer_that_subscribes_while_connected_gets_what_waits(house):
    cleo = house.connect("cleo")
    house.send("m1", queue="jobs")
    assert cleo.turn() == []
    house.registry.subscribe("lab", "queue", "jobs", "cleo")
    assert cleo.turn() == ["hello"]


# -- two connections of a member ---------------------------------------------------------


def test_prefer_newest_closes_the_older_connection(house):
    older = house.connect("bert")
    newer = house.connect("bert")
    assert older.link.closed == (4003, "replaced_by_newer_connection")
    house.send("m1", to="bert")
    assert newer.turn() == ["hello"]
    assert older.bodies == []


def test_prefer_oldest_refuses_the_newer_connection(house):
    house.registry.change_mesh("lab", wire.ChangeMesh(concurrency="prefer_oldest"))
    older = house.connect("bert")
    with pytest.raises(AlreadyConnected, match="member_already_connected"):
        house.connect("bert")
    house.send("m1", to="bert")
    assert older.turn() == ["hello"]


def test_allow_concurrent_keeps_both_and_a_message_goes_to_one(house):
    house.registry.change_mesh("lab", wire.ChangeMesh(concurrency="allow_concurrent"))
    one, two = house.connect("bert"), house.connect("bert")
    house.send("m1", to="bert")
    assert sorted(one.turn() + two.turn()) == ["hello"]


def test_receivers_of_two_members_hear_nothing_of_each_other(house):
    """An earlier implementation had one inbox for several sessions, and messages leaked."""
    bert, cleo = house.connect("bert"), house.connect("cleo")
    house.send("m1", "for bert", to="bert")
    house.send("m2", "for cleo", to="cleo")
    assert bert.turn() == ["for bert"]
    assert cleo.turn() == ["for cleo"]


# -- members that change -----------------------------------------------------------------


def test_revoked_member_hears_why_is_closed_and_gets_nothing_more(house):
    bert = house.connect("bert")
    house.send("m1", to="bert")
    house.registry.revoke_member("lab", "bert")
    names = [event.get("event") for event in bert.events]
    assert "member_revoked" in names
    assert bert.link.closed == (4401, "member_revoked")
    assert house.count("delivery_queue") == 0


def test_renamed_member_and_its_peers_are_told(house):
    bert, cleo = house.connect("bert"), house.connect("cleo")
    house.registry.rename_member("lab", "bert", wire.RenameMember("bertha"))
    for mailbox in (bert, cleo):
        assert mailbox.events[-1] == {
            "type": "event",
            "event": "member_renamed",
            "mesh": "lab",
            "member": key("bert"),
            "name": "bertha",
        }


def test_member_that_has_left_is_shown_as_gone(house):
    """An earlier implementation had ghosts among the peers."""

    def connected():
        return [one.name for one in house.registry.members("lab").members if one.connected]

    bert = house.connect("bert")
    house.connect("cleo")
    assert connected() == ["bert", "cleo"]
    bert.link.stop()
    assert connected() == ["cleo"]


def test_peers_are_told_who_joins_and_leaves(house):
    bert, cleo = house.connect("bert"), house.connect("cleo")
    cleo.link.stop()
    told = [(event["event"], event["member"]) for event in bert.events]
    assert told == [("peer_join", key("cleo")), ("peer_leave", key("cleo"))]


def test_member_with_a_new_key_gets_what_was_on_its_way_to_the_old_one(house):
    from appliance.mesh.signing import rotation_text, sign
    from tests.support.broker import seed

    house.send("m1", "before", to="bert")
    proof = sign(seed("bert2"), rotation_text("lab", key("bert"), key("bert2")))
    house.registry.rotate_member("lab", "bert", wire.RotateMember(key("bert2"), proof))
    house.send("m2", "to the old key", to="bert")
    house.send("m3", "into a topic")
    bert = house.connect("bert2")
    assert bert.turn() == ["before", "to the old key", "into a topic"]
    assert house.send("m4", sender="bert")[1]["code"] == "MEMBER_REVOKED"


def test_new_key_without_proof_is_refused(house):
    with pytest.raises(wire.BadSignature):
        house.registry.rotate_member("lab", "bert", wire.RotateMember(key("x"), "0" * 128))
    with pytest.raises(wire.MemberTaken):
        house.registry.add_member("lab", wire.AddMember(key("anna"), "other"))
