"""Exponential backoff: growth, limit, jitter, and what a peer asked for."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.kernel.retry import RetrySettings, delay_seconds

HALF_A_SECOND = RetrySettings(initial_seconds=0.5, max_seconds=30.0)


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [(-1, 0.5), (0, 0.5), (1, 0.5), (2, 1.0), (3, 2.0), (6, 16.0), (7, 30.0), (10**9, 30.0)],
)
def test_delay_doubles_up_to_the_limit(failures, seconds):
    assert delay_seconds(HALF_A_SECOND, failures) == seconds


@pytest.mark.parametrize(("random_unit", "seconds"), [(0.0, 1.5), (0.5, 2.0), (1.0, 2.5)])
def test_jitter_spreads_to_both_sides(random_unit, seconds):
    retry = RetrySettings(initial_seconds=2.0, jitter=0.25)
    assert delay_seconds(retry, 1, random_unit) == seconds


@pytest.mark.parametrize(("random_unit", "seconds"), [(0.0, 40.0), (0.5, 45.0), (1.0, 50.0)])
def test_delay_is_at_least_what_the_peer_asked_for(random_unit, seconds):
    retry = RetrySettings(initial_seconds=2.0, jitter=0.25)
    assert delay_seconds(retry, 1, random_unit, retry_after_seconds=40.0) == seconds


@given(
    failures=st.integers(),
    random_unit=st.floats(0, 1, exclude_max=True),
    jitter=st.floats(0, 1),
    factor=st.floats(1, 100),
)
def test_delay_is_finite_and_within_its_limits(failures, random_unit, jitter, factor):
    retry = RetrySettings(1.0, 60.0, factor, jitter)
    delay = delay_seconds(retry, failures, random_unit)
    assert math.isfinite(delay)
    assert (1 - jitter) * 1.0 <= delay * (1 + 1e-9)
    assert delay <= 60.0 * (1 + jitter)
