"""The tick rests while nothing can come due, and is woken when something earlier comes up."""

import pytest

from appliance.courier.credit import Taker
from tests.support.courier import House

REST_MS = 1000
TICK_MS = 20


class RecordedHouse(House):
    """Counts how often its tick was woken; a rest is what the loop would wait."""

    def __init__(self) -> None:
        super().__init__()
        self.woken = 0
        self.tick.nudge = self._count
        self.pass_ms(REST_MS)

    def _count(self) -> None:
        self.woken += 1

    @property
    def rest_ms(self) -> int:
        tick = self.tick
        return round(max(tick.interval_seconds, tick.shortest_seconds) * 1000)

    def claim(self, stream: str, lease_ms: int) -> None:
        taker = Taker(f"t{lease_ms}", "t", lambda: None, lease_ms)
        self.courier.queue.subscribe(taker, stream, self.courier.now())
        self.courier.queue.grant(taker, 1, self.courier.now())


@pytest.fixture
def house() -> RecordedHouse:
    return RecordedHouse()


def test_a_courier_without_work_ticks_once_a_second(house):
    assert house.rest_ms == REST_MS
    assert house.woken == 0


def test_envelopes_that_wait_for_a_consumer_need_no_tick(house):
    house.put("s", "a", "b")
    house.pass_ms(REST_MS)
    assert house.rest_ms == REST_MS
    assert house.woken == 0


@pytest.mark.parametrize("delay_ms", [50, 700])
def test_a_delay_that_ends_within_the_rest_wakes_the_tick(house, delay_ms):
    house.put("s", "a", delayMs=delay_ms)
    assert house.woken == 1
    house.pass_ms(TICK_MS)
    assert house.rest_ms == delay_ms - TICK_MS
    assert house.pass_ms(delay_ms - TICK_MS)["due"] == 1


def test_a_delay_beyond_the_rest_wakes_nobody_and_is_not_late(house):
    house.put("s", "a", delayMs=1500)
    assert house.woken == 0
    house.pass_ms(REST_MS)
    assert house.rest_ms == 500
    assert house.pass_ms(500)["due"] == 1


def test_a_short_lease_wakes_the_tick_and_a_long_one_does_not(house):
    house.put("s", "a", "b")
    house.claim("s", 5000)
    assert house.woken == 0
    house.claim("s", 300)
    assert house.woken == 1
    house.pass_ms(TICK_MS)
    assert house.rest_ms == 300 - TICK_MS


def test_a_pause_with_an_end_wakes_the_tick(house):
    ring = house.courier.queue.open("s", house.courier.now())
    house.courier.queue.pause(ring, house.courier.now() + 100, house.courier.now())
    assert house.woken == 1
    house.pass_ms(TICK_MS)
    assert house.rest_ms == 100 - TICK_MS


def test_what_is_held_back_for_fairness_wakes_the_tick(house):
    house.put("s", "a")
    house.pass_ms(TICK_MS)
    house.woken = 0
    house.courier.queue.rings["s"].hold_back()
    assert house.woken == 1
    house.courier.queue.rings["s"].hold_back()
    assert house.woken == 1, "once a rest"


def test_the_next_tick_is_never_sooner_than_the_setting(house):
    house.put("s", "a", delayMs=1)
    house.put("s", "b", delayMs=2)
    house.tick.run_once(0)
    assert house.rest_ms == TICK_MS
