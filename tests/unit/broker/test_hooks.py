"""Deliveries to webhooks: a row goes exactly when the endpoint took it, and nothing goes unseen."""

import json
import sqlite3
from contextlib import closing

import pytest
from standardwebhooks import Webhook

from appliance.broker import listings, webhook_wire
from appliance.broker.webhook_caller import Called
from appliance.kernel.clock import SystemClock
from appliance.kernel.errors import Conflict, Invalid
from appliance.kernel.webhook_signature import BadSecret
from tests.support.broker import House
from tests.support.clock import FakeClock

URL = "http://127.0.0.1:9/x"
WELL = Called("delivered")
BAD = Called("failed", "the receiver answered 500")
DAY_SECONDS = 86_400


class Caller:
    """Answers as it is told to, by URL or message."""

    seconds_max = 20.0

    def __init__(self):
        self.got = []
        self.answer = lambda _url, _push: WELL

    def check(self, url):
        if not url.startswith("http"):
            raise Invalid("no")

    def call(self, url, headers, body):
        push = json.loads(body)
        self.got.append((url, headers, push))
        return self.answer(url, push)

    @property
    def bodies(self):
        return [push["body"] for _, _, push in self.got]


@pytest.fixture
def caller():
    return Caller()


@pytest.fixture
def house(tmp_path, caller):
    house = House(tmp_path, hook_caller=caller)
    yield house
    house.close()


def hook_of(house, url=URL, **more):
    made = house.registry.add_hook("lab", webhook_wire.CreateHook(url, **more))
    house.registry.subscribe("lab", "topic", "alerts", f"webhook:{made.webhook.id}")
    return made


def turn(house, rounds=2):
    """Calls, then writes down what became of them."""
    for _ in range(rounds):
        house.hooks.run_once(house.clock.now_ms())


def waiting(house, hook):
    query = webhook_wire.HookDeliveriesQuery()
    return house.registry.hook_deliveries("lab", hook.webhook.id, query).deliveries


def rows(house, hook):
    sql = "SELECT count(*) FROM delivery_queue WHERE recipient = ?"
    return house.rows(sql, f"webhook:{hook.webhook.id}")[0][0]


def shown(house, hook):
    return house.registry.show_hook("lab", hook.webhook.id).webhook


def test_webhooks_are_refused_where_nothing_delivers_them(tmp_path):
    house = House(tmp_path)
    with pytest.raises(webhook_wire.NoWebhooks):
        house.registry.add_hook("lab", webhook_wire.CreateHook(URL))
    house.close()


def test_a_message_is_posted_signed_under_its_id_and_its_row_goes_with_the_answer(house, caller):
    hook = hook_of(house)
    _, body = house.send("m1", "grüße", meta={"a": 1})
    house.hooks.run_once(house.clock.now_ms())
    assert rows(house, hook) == 1  # it was called; the answer is not yet written down
    assert waiting(house, hook)[0].state == "leased"
    house.hooks.run_once(house.clock.now_ms())
    assert rows(house, hook) == 0
    ((url, headers, push),) = caller.got
    assert (url, headers["webhook-id"]) == (URL, body["broker_message_id"])
    assert (push["type"], push["body"], push["mesh"], push["meta"]) == (
        "push", "grüße", "lab", {"a": 1},
    )  # fmt: skip
    assert house.orphans() == []


def test_a_signature_is_good_with_either_secret_while_one_takes_over(tmp_path):
    caller = Caller()
    signed = []
    caller.call = lambda _url, headers, body: signed.append((headers, body)) or WELL
    # The library that verifies asks the clock of the machine.
    clock = FakeClock(SystemClock().now_ms())
    house = House(tmp_path, clock=clock, hook_caller=caller, webhook_secret_grace_hours=1.0)
    hook = hook_of(house)
    first = hook.secret
    change = webhook_wire.ChangeHook(new_secret=True)
    second = house.registry.change_hook("lab", hook.webhook.id, change).secret
    house.send("m1")
    turn(house)
    for secret in (first, second):
        Webhook(secret).verify(signed[0][1], signed[0][0])
    assert shown(house, hook).rotating_until is not None
    house.clock.pass_seconds(3601)
    assert shown(house, hook).rotating_until is None
    house.send("m2")
    turn(house)
    assert len(signed[1][0]["webhook-signature"].split()) == 1
    house.close()


def test_what_was_not_taken_is_listed_and_called_again_after_growing_pauses(house, caller):
    hook = hook_of(house)
    caller.answer = lambda _url, _push: BAD
    house.send("m1")
    turn(house)
    (one,) = waiting(house, hook)
    assert (one.state, one.attempts, one.last_error) == ("waiting", 1, BAD.reason)
    assert len(caller.got) == 1
    for seconds in (1, 2, 4):
        house.clock.pass_seconds(seconds - 0.01)
        turn(house)
        before = len(caller.got)
        house.clock.pass_seconds(0.01)
        turn(house)
        assert len(caller.got) == before + 1
    assert shown(house, hook).failing_since is not None
    caller.answer = lambda _url, _push: WELL
    house.clock.pass_seconds(60)
    turn(house)
    assert waiting(house, hook) == []
    assert shown(house, hook).failing_since is None
    assert len({headers["webhook-id"] for _, headers, _ in caller.got}) == 1


def test_a_message_that_is_never_taken_keeps_no_other_waiting(house, caller):
    hook = hook_of(house)
    caller.answer = lambda _url, push: BAD if push["body"] == "poison" else WELL
    house.send("m0", "poison")
    for number in range(20):
        house.send(f"m{number + 1}", f"b{number}")
    turn(house, 30)
    assert [body for body in caller.bodies if body != "poison"] == [f"b{n}" for n in range(20)]
    assert [one.attempts for one in waiting(house, hook)] == [1]


def test_a_receiver_that_takes_nothing_is_left_alone_then_asked_once(house, caller):
    hook_of(house)
    caller.answer = lambda _url, _push: BAD
    for number in range(50):
        house.send(f"m{number}")
    turn(house, 20)
    tried = len(caller.got)
    assert tried <= 6  # five in a row, and one beside them
    house.clock.pass_seconds(3)
    turn(house, 20)
    assert len(caller.got) == tried + 1
    caller.answer = lambda _url, _push: WELL
    house.clock.pass_seconds(60)
    turn(house, 60)
    assert house.count("delivery_queue") == 100  # bert's and cleo's


def test_one_that_takes_nothing_keeps_no_other_webhook_waiting(house, caller):
    slow, quick = hook_of(house, f"{URL}/slow"), hook_of(house, f"{URL}/quick")
    caller.answer = lambda url, _push: BAD if url.endswith("slow") else WELL
    for number in range(6):
        house.send(f"m{number}", str(number))
    turn(house, 10)
    assert (rows(house, slow), rows(house, quick)) == (6, 0)


def test_nobody_comes_before_the_time_that_was_asked_for(house, caller):
    hook_of(house)
    caller.answer = lambda _url, _push: Called("failed", "429", 30.0)
    house.send("m1")
    house.send("m2")
    turn(house)
    calls = len(caller.got)
    house.clock.pass_seconds(29)
    turn(house)
    assert len(caller.got) == calls
    house.clock.pass_seconds(1)
    turn(house)
    assert len(caller.got) > calls


def test_who_says_gone_is_switched_off_and_what_waits_stays_until_it_is_on_again(house, caller):
    hook = hook_of(house)
    caller.answer = lambda _url, _push: Called("gone", "the receiver answered 410: it is gone")
    house.send("m1")
    turn(house)
    found = shown(house, hook)
    assert (found.enabled, "410" in found.disabled_because) == (False, True)
    house.send("m2")
    house.clock.pass_seconds(600)
    turn(house)
    assert (len(caller.got), rows(house, hook)) == (1, 2)
    caller.answer = lambda _url, _push: WELL
    house.registry.change_hook("lab", hook.webhook.id, webhook_wire.ChangeHook(enabled=True))
    turn(house)
    assert rows(house, hook) == 0
    assert shown(house, hook).disabled_because is None


def test_a_receiver_that_takes_nothing_for_days_is_switched_off(house, caller):
    hook = hook_of(house)
    caller.answer = lambda _url, _push: BAD
    house.send("m1")
    turn(house)
    house.clock.pass_seconds(4.9 * DAY_SECONDS)
    turn(house)
    assert shown(house, hook).enabled
    house.clock.pass_seconds(0.2 * DAY_SECONDS)
    turn(house)
    found = shown(house, hook)
    assert (found.enabled, "days" in found.disabled_because) == (False, True)
    assert rows(house, hook) == 1


def test_a_crash_between_the_answer_and_its_commit_calls_again_under_the_same_id(tmp_path, caller):
    house = House(tmp_path, hook_caller=caller)
    hook = hook_of(house)
    house.send("m1")
    house.hooks.run_once(house.clock.now_ms())
    house.close()  # without writing down
    house = House(tmp_path, hook_caller=caller)
    assert waiting(house, hook)[0].state == "waiting"
    turn(house)
    first, second = [headers["webhook-id"] for _, headers, _ in caller.got]
    assert first == second
    assert rows(house, hook) == 0
    house.close()


def test_a_lease_outlives_the_call_and_one_without_an_end_is_called_again(house, caller):
    hook = hook_of(house)
    house.hooks._hands.spawn = lambda *_: None  # it never ends
    house.send("m1")
    turn(house)
    house.clock.pass_seconds(caller.seconds_max)
    house.sweeper.run_once(house.clock.now_ms())
    assert waiting(house, hook)[0].state == "leased"
    house.clock.pass_seconds(11)
    house.sweeper.run_once(house.clock.now_ms())
    assert waiting(house, hook)[0].state == "waiting"


def test_a_webhook_that_is_removed_is_called_no_more_and_leaves_nothing(house, caller):
    hook = hook_of(house)
    caller.answer = lambda _url, _push: BAD
    house.send("m1")
    turn(house)
    assert house.registry.remove_hook("lab", hook.webhook.id).changed
    house.send("m2")
    house.clock.pass_seconds(60)
    turn(house)
    assert (len(caller.got), rows(house, hook)) == (1, 0)
    with pytest.raises(webhook_wire.NoSuchHook):
        shown(house, hook)


def test_no_more_calls_at_once_than_there_may_be(tmp_path, caller):
    house = House(tmp_path, hook_caller=caller, webhook_each_max=3)
    begun = []
    house.hooks._hands.spawn = lambda *args: begun.append(args)
    house.hooks._hands.free = 4
    for name in "ab":
        hook_of(house, f"{URL}/{name}")
    for number in range(10):
        house.send(f"m{number}")
    turn(house, 1)
    assert len(begun) == 4
    turn(house, 1)
    assert len(begun) <= 6  # three each, however often it looks
    house.close()


def test_wrong_changes_are_refused(house):
    hook = hook_of(house)
    for command, error in (
        (webhook_wire.ChangeHook(url="ftp://x"), Invalid),
        (webhook_wire.ChangeHook(secret="whsec_x"), BadSecret),
        (webhook_wire.ChangeHook(new_secret=True, secret="whsec_" + "A" * 32), Invalid),
    ):
        with pytest.raises(error):
            house.registry.change_hook("lab", hook.webhook.id, command)
    with pytest.raises(BadSecret):
        house.registry.add_hook("lab", webhook_wire.CreateHook(URL, "whsec_short"))
    with pytest.raises(webhook_wire.NoSuchHook):
        house.registry.change_hook("lab", "bhook_x", webhook_wire.ChangeHook(enabled=True))
    with pytest.raises((Invalid, Conflict)):
        house.registry.subscribe("lab", "queue", "jobs", f"webhook:{hook.webhook.id}")


def test_looking_for_work_takes_a_step_in_an_index(house):
    hook = hook_of(house)
    for sql, index in (
        ("SELECT id FROM delivery_queue WHERE mesh_id = ? AND recipient = ?"
         " AND lease_owner IS NULL AND rank <= 2 AND ready_ms <= 5 ORDER BY rank, id LIMIT 1",
         "delivery_ready"),
        ("SELECT id FROM delivery_queue WHERE lease_owner IS NULL AND mesh_id = ?"
         " AND recipient = ? ORDER BY rank, id LIMIT 10", "delivery_ready"),
    ):  # fmt: skip
        plan = house.rows(f"EXPLAIN QUERY PLAN {sql}", "lab", f"webhook:{hook.webhook.id}")
        assert all(index in row[3] for row in plan), plan


def test_a_delivery_claimed_while_the_list_is_read_is_in_it_once(house):
    """The list is two statements: what is being called, then what waits."""
    hook = hook_of(house)
    for number in range(2):
        house.send(f"m{number}")
    ids = [one.message_id for one in waiting(house, hook)]
    assert len(ids) == 2

    def read(reader):
        execute = reader.execute

        def claim_before_the_second(sql, *parameters):
            if sql.startswith("SELECT 1,"):
                with closing(sqlite3.connect(house.path)) as other, other:
                    other.execute(
                        "UPDATE delivery_queue SET lease_owner = 'x', lease_until_ms = 9"
                        " WHERE recipient LIKE 'webhook:%'"
                    )
            return execute(sql, *parameters)

        reader.execute = claim_before_the_second
        try:
            page, *_ = listings.hook_deliveries(reader, mesh.id, hook.webhook.id, "x", "", 10)
        finally:
            reader.execute = execute
        return [one.message_id for one in page]

    mesh = house.broker.directory.mesh("lab")
    assert house.store.read(read) == ids
    assert house.store.read(read) == ids, "the next page is another state, and as whole"
