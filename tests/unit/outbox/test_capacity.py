"""Fill levels, and the gauge that estimates between measurements."""

import pytest

from appliance.outbox import capacity


@pytest.mark.parametrize(
    ("filled", "level", "accepts"),
    [
        (0.0, "normal", True),
        (0.7999, "normal", True),
        (0.80, "high", True),
        (0.9499, "high", True),
        (0.95, "full", False),
        (1.0, "degraded", False),
        (3.0, "degraded", False),
    ],
)
def test_level_decides_whether_sends_are_accepted(filled, level, accepts):
    gauge = capacity.Gauge(sends_max=100, bytes_max=10_000)
    gauge.set_usage(0, round(filled * 10_000))
    assert (gauge.level, gauge.free_sends > 0) == (level, accepts)


def test_gauge_estimates_between_measurements():
    gauge = capacity.Gauge(sends_max=100, bytes_max=10_000)
    assert gauge.free_sends == 95
    gauge.accepted(95, 100)
    assert (gauge.free_sends, gauge.level) == (0, "full")
    gauge.ended(20)
    assert (gauge.free_sends, gauge.level) == (20, "normal")
    gauge.accepted(0, 9_450)
    assert (gauge.free_sends, gauge.level) == (0, "full")
    gauge.set_usage(10, 1_000)
    assert (gauge.free_sends, gauge.level) == (85, "normal")
