"""Many sends, slow and broken routes, order, and targets that are no broker."""

import sqlite3

import pytest
from msgspec import structs

from appliance.kernel.config import BadSettings
from appliance.outbox import wire
from appliance.outbox.settings import InOrder
from appliance.outbox.target import Delivered, Later, Refused
from tests.support.outbox import House


def always(status, body=None, wait=None):
    return lambda _item: (status, body, wait)


class Talking:
    """A target that says what it is told to, one send at a time."""

    def __init__(self, name, say):
        self.name = name
        self.say = say
        self.sent = []

    def deliver(self, send):
        self.sent.append(send)
        return self.say(send)


# -- many --------------------------------------------------------------------------------


def test_many_are_delivered_in_requests_of_two_hundred(house):
    house.outbox.send_many([wire.Send("#a", str(number)) for number in range(450)])
    assert house.round() == {"claimed": 450}
    assert house.target.batches == [200, 200, 50]
    assert house.ledger.bodies == [str(number) for number in range(450)]


def test_a_request_has_a_limit_in_bytes_and_one_send_always_fits(new_house):
    house = new_house(deliver_bytes_max=1000)
    for size in (400, 400, 400, 5000, 100):
        house.send("x" * size)
    house.round()
    assert house.target.batches == [2, 1, 1, 1]


def test_one_refused_send_of_many_keeps_nobody_else(house):
    house.ledger.trouble = lambda item: (
        (404, {"error": "gone"}, None) if item["body"] == "bad" else None
    )
    for text in ("good", "bad", "fine"):
        house.send(text, key=text)
    house.round()
    assert house.statuses() == {"good": "done", "bad": "dead", "fine": "done"}


def test_a_broker_that_is_down_is_asked_little_and_found_again(house):
    house.ledger.trouble = always(503)
    for number in range(50):
        house.send(key=f"k{number}")
    for _ in range(5):
        house.round()
        house.clock.pass_seconds(31)
    asked = len(house.ledger.asked)
    house.round()
    assert len(house.ledger.asked) - asked <= house.settings.breaker_probe
    house.round()
    assert len(house.ledger.asked) - asked <= house.settings.breaker_probe
    assert house.outbox.state().open_routes == ["broker:default"]
    house.ledger.trouble = lambda _item: None
    house.clock.pass_seconds(60)
    house.round()
    house.round()
    assert set(house.statuses().values()) == {"done"}
    assert house.outbox.state().open_routes == []


def test_one_mesh_that_is_down_keeps_no_other(house):
    house.ledger.trouble = lambda item: (503, None, None) if item["mesh"] == "down" else None
    for number in range(300):
        house.send(key=f"down{number}", mesh="down")
    house.send(key="up", mesh="up")
    house.round()
    assert house.row("up").status == "done"


def test_a_poisoned_send_does_not_starve_the_others(house):
    house.ledger.trouble = lambda item: (
        (500, {"error": "crash"}, None) if item["body"] == "poison" else None
    )
    house.send("poison", key="poison")
    for number in range(20):
        house.round()
        house.send(key=f"k{number}")
        house.clock.pass_seconds(31)
    house.round()
    statuses = house.statuses()
    assert statuses.pop("poison") == "pending"
    assert set(statuses.values()) == {"done"}


# -- slow --------------------------------------------------------------------------------


class Waiting:
    """Hands that hold their work until the test says so."""

    def __init__(self, size):
        self.size = size
        self.work = []

    @property
    def free(self):
        return self.size - len(self.work)

    def spawn(self, work, *args):
        assert self.free > 0
        self.work.append((work, args))

    def finish(self, place=0):
        work, args = self.work.pop(place)
        work(*args)


def waiting(new_house, size=16, **settings):
    house = new_house(concurrency_max=size, **settings)
    house.sender._hands = hands = Waiting(size)
    return house, hands


def test_a_destination_has_few_deliveries_at_a_time(new_house):
    house, hands = waiting(new_house, deliver_max=1)
    for number in range(10):
        house.send(key=f"k{number}")
    house.round()
    house.round()
    assert len(hands.work) == house.settings.route_concurrency_max
    hands.finish()
    house.round()
    assert len(hands.work) == house.settings.route_concurrency_max


def test_slow_destinations_together_leave_half_of_the_hands_free(new_house):
    house, hands = waiting(new_house, size=8, deliver_max=1)

    def slow(_item):
        house.clock.pass_seconds(3)

    house.ledger.trouble = slow
    for mesh in range(20):
        for number in range(5):
            house.send(key=f"{mesh}/{number}", mesh=f"slow{mesh}")
    for _ in range(30):  # until each is known to be slow
        house.round()
        while hands.work:
            hands.finish()
    for mesh in range(20):
        for number in range(5):
            house.send(key=f"{mesh}/again{number}", mesh=f"slow{mesh}")
    house.round()
    assert len(hands.work) == 4
    house.send(key="quick", mesh="quick")
    house.round()
    assert len(hands.work) == 5
    hands.finish(4)
    assert house.row("quick").status == "done"


# -- order -------------------------------------------------------------------------------


def test_in_order_a_failure_holds_its_destination_and_no_other(new_house):
    house = new_house(ordered=True)
    house.ledger.trouble = lambda item: (
        (503, None, None) if item["destination_ref"] == "a" else None
    )
    for number in range(3):
        house.send(f"a{number}", to="#a")
        house.send(f"b{number}", to="#b")
    for _ in range(4):
        house.round()
        house.clock.pass_seconds(0.1)
    assert house.ledger.bodies == ["b0", "b1", "b2"]
    house.ledger.trouble = lambda _item: None
    for _ in range(5):
        house.clock.pass_seconds(31)
        house.round()
    assert house.ledger.bodies == ["b0", "b1", "b2", "a0", "a1", "a2"]


def test_in_order_nothing_passes_what_is_on_its_way(new_house):
    house, hands = waiting(new_house, ordered=True)
    for number in range(3):
        house.send(str(number))
    for _ in range(3):
        house.round()
    assert len(hands.work) == 1
    while hands.work:
        hands.finish()
        house.round()
    assert house.ledger.bodies == ["0", "1", "2"]


def test_in_order_a_dead_send_lets_the_next_one_go(new_house):
    house = new_house(ordered=True)
    house.ledger.trouble = lambda item: (
        (404, {"error": "no"}, None) if item["body"] == "bad" else None
    )
    for text in ("bad", "good"):
        house.send(text, key=text)
    house.round()
    assert house.statuses() == {"bad": "dead", "good": "done"}


def test_in_order_many_destinations_are_gone_round(new_house):
    house = new_house(ordered=True, deliver_max=3)
    for place in range(20):
        for number in range(2):
            house.send(f"{number}", to=f"#t{place:02}")
    for _ in range(3):
        house.round()
    assert set(house.statuses().values()) == {"done"}
    by_topic = {}
    for row in house.ledger.rows.values():
        by_topic.setdefault(row["destination_ref"], []).append(row["body"])
    assert all(bodies == ["0", "1"] for bodies in by_topic.values())


IN_ORDER = [
    (InOrder(to="#a"), "#a"),
    (InOrder(mesh="default", to="#a"), "#a"),
    (InOrder(mesh="default"), "#a"),
    (InOrder(), "#a"),
    (InOrder(to="A" * 64), f"dm:{'a' * 64}"),
    (InOrder(to="queue:q1"), "queue:q1"),
]


@pytest.mark.parametrize(("place", "to"), IN_ORDER)
def test_a_destination_that_chose_order_has_it(new_house, place, to):
    house = new_house(in_order=(place,))
    failing = iter([True, False])
    house.ledger.trouble = lambda _item: (503, None, None) if next(failing, False) else None
    for number in range(3):
        house.send(str(number), to=to)
        house.round()
    assert house.ledger.bodies == []
    for _ in range(3):
        house.clock.pass_seconds(31)
        house.round()
    assert house.ledger.bodies == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("place", "batches"),
    [
        (InOrder(to="#a"), [1, 3]),
        (InOrder(mesh="lab"), [6]),
        (InOrder(mesh="lab", to="#b"), [6]),
    ],
)
def test_destinations_that_did_not_choose_order_go_together_past_those_that_wait(
    new_house, place, batches
):
    house = new_house(in_order=(place,))
    house.ledger.trouble = lambda item: (
        (503, None, None) if item["destination_ref"] == "a" else None
    )
    for number in range(3):
        house.send(f"a{number}", to="#a")
    house.outbox.send_many([wire.Send("#b", f"b{number}") for number in range(3)])
    house.round()
    assert house.ledger.bodies == ["b0", "b1", "b2"]
    assert sorted(house.target.batches) == batches
    house.ledger.trouble = lambda _item: None
    for _ in range(4):
        house.clock.pass_seconds(31)
        house.round()
    assert set(house.statuses().values()) == {"done"}


def test_a_choice_of_order_is_for_sends_that_come_after_it(new_house):
    """What was accepted without goes as it was accepted; and the greatest age is the mesh's."""
    house = new_house()
    house.ledger.trouble = always(503)
    house.send("before", key="before")
    house.settings = structs.replace(house.settings, in_order=(InOrder(to="#alerts"),))
    house.reopen()
    house.outbox.adopt("default", 30)
    house.send("after", key="after")
    house.clock.pass_seconds(200 * 3600)
    house.ledger.trouble = lambda _item: None
    house.sweep.run_once(house.clock.now_ms())
    for _ in range(2):
        house.round()
    assert house.statuses() == {"before": "done", "after": "done"}


def test_an_order_for_no_destination_is_refused_at_the_start(new_house):
    with pytest.raises(BadSettings, match="in_order"):
        new_house(in_order=(InOrder(to="alerts"),))


# -- other targets -----------------------------------------------------------------------


def test_a_row_names_what_delivers_it(house):
    pigeon = Talking("pigeon", lambda _send: Delivered())
    house.targets["pigeon"] = pigeon
    house.send("coo", key="k1", target="pigeon")
    house.send("hello", key="k2")
    house.round()
    assert house.statuses() == {"k1": "done", "k2": "done"}
    (send,) = pigeon.sent
    assert (send.body, send.attempt, send.target) == ("coo", 1, "pigeon")
    assert house.ledger.bodies == ["hello"]


@pytest.mark.parametrize(
    ("said", "status", "error"),
    [
        (Refused("no such box", "550"), "dead", "no such box"),
        (Later("greylisted", 5.0), "pending", "greylisted"),
    ],
)
def test_other_targets_say_the_same_three_things(house, said, status, error):
    house.targets["pigeon"] = Talking("pigeon", lambda _send: said)
    house.send(key="k1", target="pigeon")
    house.round()
    assert (house.row("k1").status, house.row("k1").last_error) == (status, error)


def test_a_target_may_have_destinations_of_its_own(house):
    class Mail(Talking):
        def place(self, to):
            return "queue", to.lower(), f"mail:{to.partition('@')[2]}"

    house.targets["mail"] = mail = Mail("mail", lambda _send: Delivered("m1"))
    house.send(key="k1", to="Ann@example.com", target="mail")
    assert house.rows("SELECT route FROM outbox") == [("mail:example.com",)]
    house.round()
    assert mail.sent[0].destination_ref == "ann@example.com"
    assert house.row("k1").broker_message_id == "m1"


def test_sends_of_a_target_that_is_gone_wait_for_it(house):
    house.targets["pigeon"] = Talking("pigeon", lambda _send: Delivered())
    house.send(key="k1", target="pigeon")
    del house.targets["pigeon"]
    house.send(key="k2")
    house.round()
    assert house.statuses() == {"k1": "pending", "k2": "done"}


def test_claims_use_their_indexes(house: House):
    """A claim may not read what was delivered long ago."""
    with sqlite3.connect(house.path) as connection:
        for sql in (
            "SELECT id FROM outbox WHERE status = 'pending' AND route = 'r'"
            " AND next_attempt_at <= 1 AND enqueued_at > 0 ORDER BY next_attempt_at, rowid LIMIT 9",
            "SELECT id FROM outbox WHERE status IN ('pending', 'inflight') AND route = 'r'"
            " AND (destination_kind, destination_ref) > ('a', 'b')"
            " ORDER BY destination_kind, destination_ref, rowid LIMIT 1",
            "SELECT route FROM outbox WHERE status = 'pending' AND route > 'a'"
            " ORDER BY route, next_attempt_at LIMIT 1",
            "SELECT id FROM outbox WHERE status = 'pending' AND id < 'out_0' AND enqueued_at <= 5"
            " AND mesh = 'm' ORDER BY id LIMIT 10",
            "SELECT id FROM outbox WHERE status = 'inflight' AND id NOT IN"
            " (SELECT value FROM json_each('[]'))",
            "SELECT id FROM outbox WHERE status = 'dead' ORDER BY id DESC LIMIT 10",
        ):
            plan = " ".join(row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + sql))
            assert "USING" in plan, plan
            assert "INDEX outbox_" in plan, plan
            assert "TEMP B-TREE" not in plan, plan
    connection.close()
