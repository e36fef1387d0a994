"""The steady clock: it follows the uptime within a boot, and never goes back after one."""

import pytest

from appliance.kernel.clock import DAY_MS
from appliance.kernel.steady_clock import (
    TOLERANCE_MS,
    ClockNote,
    ClockReading,
    beyond_tolerance,
    steady_at,
)

AHEAD_MS = 1000  # the wall clock was that far ahead when the note was written


@pytest.mark.parametrize(
    ("boot", "wall_ms", "uptime_ms", "passed_ms"),
    [
        ("same", 10_000, 10_000, 10_000),
        ("same", 90_000, 10_000, 10_000),
        ("same", -70_000, 10_000, 10_000),
        ("other", DAY_MS, -500_000, DAY_MS),
        ("other", -DAY_MS, -500_000, 0),
        ("", DAY_MS, 5, DAY_MS),
    ],
)
def test_time_since_note_includes_time_switched_off(boot, wall_ms, uptime_ms, passed_ms):
    past = ClockReading(DAY_MS, 600_000, "" if not boot else "same")
    now = ClockReading(DAY_MS + wall_ms, 600_000 + uptime_ms, boot)
    assert steady_at(ClockNote(past, total_ms=AHEAD_MS), now) == DAY_MS - AHEAD_MS + passed_ms


def test_small_steps_are_not_reported():
    assert beyond_tolerance(TOLERANCE_MS - 1) == beyond_tolerance(1 - TOLERANCE_MS) == 0
    assert beyond_tolerance(-TOLERANCE_MS) == -TOLERANCE_MS
