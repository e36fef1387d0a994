"""Clock changes noticed within a process and between two."""

import msgspec
import pytest

from appliance.kernel.clock_jump import TOLERANCE_MS, ClockReading, ClockWatch
from tests.support.clock import FakeClock

HOUR_MS = 3_600_000


DAY_MS = 24 * HOUR_MS


def test_small_steps_and_suspended_time_are_ignored():
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
    ("boot", "clock_ms", "uptime_ms", "expected"),
    [
        ("same", 10_000, 10_000, 0),
        ("same", 90_000, 10_000, 80_000),
        ("same", -70_000, 10_000, -80_000),
        ("other", DAY_MS, -500_000, 0),
        ("other", -DAY_MS, -500_000, -DAY_MS),
        ("", DAY_MS, 5, 0),
    ],
)
def test_readings_of_two_processes_are_compared(boot, clock_ms, uptime_ms, expected):
    clock = FakeClock()
    watch = ClockWatch(clock, boot if boot != "other" else "new")
    past = msgspec.structs.replace(
        watch.reading(),
        wall_ms=clock.ms - clock_ms,
        uptime_ms=int(clock.seconds * 1000) - uptime_ms,
        boot_id=boot,
    )
    assert isinstance(past, ClockReading)
    assert watch.jump_since_ms(past) == expected
