"""The tick sleeps until something is due, and is woken when something earlier comes up."""

import pytest

from tests.support.courier import CourierFixture

SLEEP_MS = 1000
TICK_MS = 20


class RecordingCourierFixture(CourierFixture):
    """Counts how often its tick is woken. `sleep_ms` is how long the loop would sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.woken = 0
        self.tick.nudge = self._count
        self.pass_ms(SLEEP_MS)

    def _count(self) -> None:
        self.woken += 1

    @property
    def sleep_ms(self) -> int:
        tick = self.tick
        return round(max(tick.interval_seconds, tick.shortest_seconds) * 1000)


@pytest.fixture
def courier() -> RecordingCourierFixture:
    return RecordingCourierFixture()


@pytest.mark.parametrize("delay_ms", [50, 700])
def test_delay_that_ends_during_the_sleep_wakes_the_tick(courier, delay_ms):
    courier.put("s", "a", delayMs=delay_ms)
    assert courier.woken == 1
    courier.pass_ms(TICK_MS)
    assert courier.sleep_ms == delay_ms - TICK_MS
    assert courier.pass_ms(delay_ms - TICK_MS)["due"] == 1


def test_delay_that_ends_after_the_sleep_does_not_wake_the_tick(courier):
    courier.put("s", "a", delayMs=1500)
    assert courier.woken == 0
    courier.pass_ms(SLEEP_MS)
    assert courier.sleep_ms == 500
    assert courier.pass_ms(500)["due"] == 1
