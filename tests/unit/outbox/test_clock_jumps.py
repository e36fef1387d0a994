"""The clock is set, forward and back, while sends wait: none is blocked, none dies too early."""

import msgspec
import pytest

from appliance.kernel.clock_jump import TOLERANCE_MS, ClockReading, ClockWatch
from appliance.kernel.errors import Unavailable
from tests.support.clock import FakeClock

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
JUMPS = [-30 * DAY_MS, -HOUR_MS, HOUR_MS, 30 * DAY_MS, 20_000 * DAY_MS]


def lose_acks(house, lost=True):
    house.ledger.lost = lambda _item: lost


def times(house):
    sql = "SELECT client_message_id, enqueued_at, next_attempt_at FROM outbox"
    now = house.clock.now_ms()
    return {id_: (enqueued - now, due - now) for id_, enqueued, due in house.rows(sql)}


def round_and_sweep(house):
    house.outbox.jumps.check()
    house.round()
    house.sweep.run_once(house.clock.now_ms())


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_ages_and_waits_stay_what_they_were(house, jump_ms):
    lose_acks(house)
    house.send(key="k1")
    house.round()
    house.clock.pass_seconds(5)
    before = times(house)
    house.clock.ms += jump_ms
    house.outbox.jumps.check()
    assert times(house) == before


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_a_send_is_delivered_as_soon_as_without_the_jump(house, jump_ms):
    lose_acks(house)
    house.send(key="k1")
    house.round()
    house.clock.ms += jump_ms
    lose_acks(house, lost=False)
    house.clock.pass_seconds(1)
    round_and_sweep(house)
    assert house.row("k1").status == "done"


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_a_send_dies_at_its_age_and_not_by_the_clock(house, jump_ms):
    lose_acks(house)
    hours = house.outbox.max_age_hours("default")
    house.send(key="before")
    house.clock.pass_seconds(3600)
    house.clock.ms += jump_ms
    house.outbox.jumps.check()
    house.send(key="after")
    house.clock.pass_seconds(3600 * (hours - 2))
    house.sweep.run_once(house.clock.now_ms())
    assert house.statuses() == {"before": "pending", "after": "pending"}
    house.clock.pass_seconds(3600)
    house.sweep.run_once(house.clock.now_ms())
    assert house.statuses() == {"before": "dead", "after": "pending"}
    house.clock.pass_seconds(3600)
    house.sweep.run_once(house.clock.now_ms())
    assert house.statuses() == {"before": "dead", "after": "dead"}


def test_ordered_destinations_are_not_blocked_behind_a_send_of_the_future(new_house):
    house = new_house(ordered=True)
    house.clock.ms += DAY_MS
    house.outbox.jumps.check()
    lose_acks(house)
    house.send(key="k1")
    house.round()
    house.clock.ms -= DAY_MS
    lose_acks(house, lost=False)
    house.send(key="k2")
    house.clock.pass_seconds(2)
    for _ in range(2):
        round_and_sweep(house)
    assert house.statuses() == {"k1": "done", "k2": "done"}


@pytest.mark.parametrize("jump_ms", [-30 * DAY_MS, 30 * DAY_MS])
def test_an_open_circuit_breaker_opens_no_longer_than_it_would(new_house, jump_ms):
    house = new_house(breaker_failures=1)
    lose_acks(house)
    house.send(key="k1")
    house.round()
    assert house.sender.open_routes()
    house.clock.ms += jump_ms
    lose_acks(house, lost=False)
    house.clock.pass_seconds(60)
    round_and_sweep(house)
    assert house.row("k1").status == "done"


@pytest.mark.parametrize("jump_ms", [-30 * DAY_MS, 30 * DAY_MS])
def test_a_jump_while_the_appliance_is_stopped_is_noticed_at_the_start(house, jump_ms):
    lose_acks(house)
    house.send(key="k1")
    house.round()
    house.sweep.run_once(house.clock.now_ms())
    before = times(house)
    house.clock.ms += jump_ms
    house.reopen()
    assert times(house) == before
    assert house.outbox.jumps.last[0] == jump_ms


def test_time_that_passes_while_the_appliance_is_stopped_counts(house):
    lose_acks(house)
    house.send(key="k1")
    house.sweep.run_once(house.clock.now_ms())
    house.clock.pass_seconds(3600)
    house.reopen()
    assert times(house)["k1"] == (-HOUR_MS, -HOUR_MS)
    assert house.outbox.jumps.last == (0, None)


def test_times_of_an_older_program_that_can_not_be_are_ended_at_the_start(house):
    house.send(key="k1")
    house.set("k1", "pending", next_attempt_at=house.clock.now_ms() + DAY_MS)
    house.reopen()
    assert times(house)["k1"][1] <= 0


def test_a_jump_that_can_not_be_written_is_made_up_for(house, monkeypatch):
    house.send(key="k1")
    before = times(house)
    house.clock.ms += DAY_MS

    def refuse(*_):
        raise Unavailable

    with monkeypatch.context() as fault:
        fault.setattr(house.store, "write", refuse)
        house.outbox.jumps.check()
    assert times(house) != before
    house.outbox.jumps.check()
    assert times(house) == before


def test_status_reports_the_jump_and_the_true_age(house):
    house.send(key="k1")
    house.clock.pass_seconds(60)
    house.clock.ms -= DAY_MS
    house.watch.run_once(house.clock.now_ms())
    state = house.outbox.state()
    assert state.oldest_pending_seconds == 60
    assert state.clock_jump_seconds == -86_400
    assert state.clock_jumped_at is not None


# -- noticing ------------------------------------------------------------------------------


def test_small_steps_and_suspended_time_are_no_jumps():
    clock = FakeClock()
    watch = ClockWatch(clock, "boot")
    for _ in range(10):
        clock.ms += TOLERANCE_MS - 1
        assert watch.jump_ms() == 0
    clock.pass_seconds(86_400)
    assert watch.jump_ms() == 0
    clock.ms -= 5000
    assert watch.jump_ms() == -5000
    assert watch.jump_ms() == 0


@pytest.mark.parametrize(
    ("boot", "wall_ms", "uptime_ms", "expected"),
    [
        ("same", 10_000, 10_000, 0),
        ("same", 90_000, 10_000, 80_000),
        ("same", -70_000, 10_000, -80_000),
        ("other", DAY_MS, -500_000, 0),
        ("other", -DAY_MS, -500_000, -DAY_MS),
        ("", DAY_MS, 5, 0),
    ],
)
def test_readings_of_two_processes_are_compared(boot, wall_ms, uptime_ms, expected):
    clock = FakeClock()
    watch = ClockWatch(clock, boot if boot != "other" else "new")
    past = msgspec.structs.replace(
        watch.reading(),
        wall_ms=clock.ms - wall_ms,
        uptime_ms=int(clock.seconds * 1000) - uptime_ms,
        boot_id=boot,
    )
    assert isinstance(past, ClockReading)
    assert watch.jump_since_ms(past) == expected
