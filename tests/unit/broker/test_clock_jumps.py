"""The clock is set, forward and back, while the broker holds messages: none waits, none goes."""

import gevent
import pytest

from appliance.broker import webhook_wire, wire
from appliance.broker.writes import move_times
from appliance.kernel.clock import iso
from appliance.kernel.errors import Unavailable
from tests.support.broker import House
from tests.unit.broker.test_hooks import BAD, WELL, Caller, hook_of, shown, turn

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
DAY_SECONDS = 86_400
BACK = [-30 * DAY_MS, -HOUR_MS]
JUMPS = [*BACK, HOUR_MS, 30 * DAY_MS, 20_000 * DAY_MS]


@pytest.fixture
def house(tmp_path):
    house = House(tmp_path)
    yield house
    house.close()


@pytest.fixture
def caller():
    return Caller()


def reopened(house, **more):
    """After a restart."""
    house.close()
    return House(house.path.parent, clock=house.clock, **more)


def round_of_loops(house):
    now_ms = house.clock.now_ms()
    house.deliverer.run_once(now_ms)
    house.sweeper.run_once(now_ms)
    house.retention.run_once(now_ms)


def waits(house):
    """When rows become ready and leases end, from now on."""
    now_ms = house.clock.now_ms()
    rows = house.rows("SELECT ready_ms, lease_until_ms FROM delivery_queue ORDER BY id")
    return [(ready - now_ms, until and until - now_ms) for ready, until in rows]


def fail_once(house):
    """A delivery that bert did not take: it waits for a second."""

    def fail(_pushes):
        raise RuntimeError

    box = house.connect("bert", fail)
    box.turn()
    box.link.stop()


# -- schedules -------------------------------------------------------------------------------


@pytest.mark.parametrize("jump_ms", BACK)
@pytest.mark.parametrize("restart", [False, True])
def test_a_message_accepted_while_the_clock_was_ahead_is_delivered(house, jump_ms, restart):
    house.send("m1", to="bert")
    round_of_loops(house)
    house.clock.ms += jump_ms
    if restart:
        house = reopened(house)
    assert house.connect("bert").turn() == ["hello"]
    house.store.close()


@pytest.mark.parametrize("jump_ms", JUMPS)
@pytest.mark.parametrize("restart", [False, True])
def test_a_released_delivery_waits_for_its_pause_and_no_longer(house, jump_ms, restart):
    house.send("m1", to="bert")
    fail_once(house)
    round_of_loops(house)
    (before,) = waits(house)
    assert 0 < before[0] <= 60_000
    house.clock.ms += jump_ms
    if restart:
        house = reopened(house)
    round_of_loops(house)
    assert waits(house) == [before]
    house.clock.pass_seconds(before[0] / 1000)
    assert house.connect("bert").turn() == ["hello"]
    house.store.close()


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_a_lease_ends_when_it_would_have(house, jump_ms):
    house.connect("bert", lambda pushes: [])
    house.send("m1", to="bert")
    house.deliver()
    house.clock.pass_seconds(20)
    house.clock.ms += jump_ms
    assert house.sweeper.run_once(house.clock.now_ms()) == {"expired": 0}
    house.clock.pass_seconds(11)
    assert house.sweeper.run_once(house.clock.now_ms()) == {"expired": 1}


def test_a_wait_of_an_older_program_that_can_not_be_is_ended_at_the_start(house):
    house.send("m1", to="bert")
    later_ms = house.clock.now_ms() + DAY_MS
    house.store.write(_delay, later_ms)
    house = reopened(house)
    assert house.connect("bert").turn() == ["hello"]
    house.store.close()


def _delay(tx, ready_ms):
    tx.execute("UPDATE delivery_queue SET ready_ms = ?", (ready_ms,))


# -- ages ------------------------------------------------------------------------------------


def keep(house):
    house.registry.change_mesh("lab", wire.ChangeMesh("retention_scoped", 14, 7))


@pytest.mark.parametrize("jump_ms", JUMPS)
@pytest.mark.parametrize("restart", [False, True])
def test_messages_and_ids_go_at_their_age_and_not_by_the_clock(house, jump_ms, restart):
    keep(house)
    house.send("before")
    round_of_loops(house)
    house.clock.pass_seconds(DAY_SECONDS)
    house.clock.ms += jump_ms
    if restart:
        house = reopened(house)
    house.send("after")

    def after(days):
        house.clock.pass_seconds(days * DAY_SECONDS + 1)
        swept = house.retention.sweep(house.clock.now_ms())
        return swept["messages"], swept["ids"]

    assert after(5) == (0, 0)
    assert after(1) == (1, 0)
    assert after(1) == (1, 0)
    assert after(5) == (0, 0)
    assert house.send("before")[0] == house.send("after")[0] == 200
    assert after(1) == (0, 1)
    assert after(1) == (0, 1)
    house.store.close()


@pytest.mark.parametrize("jump_ms", [30 * DAY_MS, 20_000 * DAY_MS])
def test_the_nightly_sweep_after_a_jump_removes_nothing_too_early(house, jump_ms):
    keep(house)
    house.send("m1", to="bert")
    round_of_loops(house)
    house.clock.ms += jump_ms
    round_of_loops(house)
    assert house.connect("bert").turn() == ["hello"]
    assert house.send("m1", to="bert")[0] == 200


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_a_message_shows_the_time_that_the_clock_showed(house, jump_ms):
    house.clock.ms += jump_ms
    house.broker.jumps.check()
    house.send("m1", to="bert")
    house.send("m2")
    expected = {house.clock.ms}
    history = house.registry.history("lab", None, wire.HistoryQuery()).history
    box = house.connect("bert")
    box.turn()
    assert {past.message.created_at for past in history} == {iso(ms) for ms in expected}
    assert {push.created_at for push in box.got} == {iso(ms) for ms in expected}


# -- webhooks --------------------------------------------------------------------------------


@pytest.mark.parametrize("jump_ms", JUMPS)
@pytest.mark.parametrize("failures", [1, 6])
def test_a_webhook_is_called_again_after_its_pause(tmp_path, caller, jump_ms, failures):
    house = House(tmp_path, hook_caller=caller)
    hook = hook_of(house)
    caller.answer = lambda _url, _push: BAD
    house.send("m1")
    turn(house)
    for _ in range(failures - 1):
        house.clock.pass_seconds(60)
        turn(house)
    assert len(caller.got) == failures
    house.clock.ms += jump_ms
    turn(house)
    assert len(caller.got) == failures
    caller.answer = lambda _url, _push: WELL
    house.clock.pass_seconds(60)
    turn(house)
    assert len(caller.got) == failures + 1
    assert shown(house, hook).enabled
    house.close()


def test_a_webhook_is_not_switched_off_by_a_jump(tmp_path, caller):
    house = House(tmp_path, hook_caller=caller)
    hook = hook_of(house)
    caller.answer = lambda _url, _push: BAD
    house.send("m1")
    turn(house)
    for _ in range(2):
        house.clock.ms += 6 * DAY_MS
        house.clock.pass_seconds(60)
        turn(house)
    assert shown(house, hook).enabled
    house.close()


@pytest.mark.parametrize("jump_ms", [-DAY_MS, DAY_MS])
def test_a_replaced_secret_signs_for_as_long_as_without_the_jump(tmp_path, caller, jump_ms):
    house = House(tmp_path, hook_caller=caller, webhook_secret_grace_hours=1.0)
    hook = hook_of(house)
    house.registry.change_hook("lab", hook.webhook.id, webhook_wire.ChangeHook(new_secret=True))
    house.clock.ms += jump_ms
    turn(house)
    assert shown(house, hook).rotating_until is not None
    house.clock.pass_seconds(3601)
    assert shown(house, hook).rotating_until is None
    house.close()


# -- noticing --------------------------------------------------------------------------------


def test_a_jump_that_can_not_be_written_is_made_up_for(house, monkeypatch):
    house.send("m1", to="bert")
    fail_once(house)
    before = waits(house)

    def refuse(*_):
        raise Unavailable

    house.clock.ms -= DAY_MS
    with monkeypatch.context() as fault:
        fault.setattr(house.store, "write", refuse)
        house.broker.jumps.check()
    assert waits(house) != before
    house.broker.jumps.check()
    assert waits(house) == before


def test_two_checks_at_the_same_time_move_times_once(house):
    house.send("m1", to="bert")
    fail_once(house)
    before = waits(house)
    house.clock.ms -= DAY_MS
    gevent.joinall([gevent.spawn(house.broker.check_clock) for _ in range(3)], raise_error=True)
    assert waits(house) == before


def test_times_written_after_a_forward_jump_and_before_it_was_noticed_stay(house):
    """They would be a jump too late otherwise."""
    house.clock.ms += DAY_MS
    house.send("m1", to="bert")
    house.store.write(_delay, house.clock.now_ms() + 60_000)
    house.store.write(move_times, DAY_MS, house.settings.wait_ms_max)
    assert waits(house) == [(60_000, None)]


def test_ages_leave_out_a_jump_that_is_not_written_yet(house, monkeypatch):
    keep(house)
    house.send("m1", to="bert")

    def refuse(*_):
        raise Unavailable

    house.clock.ms += 30 * DAY_MS
    with monkeypatch.context() as fault:
        fault.setattr(house.broker.jumps, "_move", refuse)
        assert house.retention.sweep(house.clock.now_ms()) == {"messages": 0, "ids": 0}


def test_status_and_log_report_the_jump(house):
    assert house.registry.status().clock_jumped_at is None
    house.clock.ms -= DAY_MS
    round_of_loops(house)
    status = house.registry.status()
    assert status.clock_jump_seconds == -86_400
    assert status.clock_jumped_at is not None
    assert house.lines.entries()[-1]["msg"] == "the clock was set"
