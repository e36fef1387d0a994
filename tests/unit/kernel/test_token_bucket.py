"""The token bucket: bursts, average rate, debt, and a clock that jumps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.kernel.token_bucket import TokenBucket


def test_bucket_allows_its_burst_and_then_its_rate():
    bucket = TokenBucket(rate=2.0, burst=3.0, now=0.0)
    assert [bucket.take(1, 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert bucket.take(1, 0.5) == 0.0


def test_a_cost_above_the_burst_is_owed():
    bucket = TokenBucket(rate=10.0, burst=10.0, now=0.0)
    assert bucket.take(30, 0.0) == 0.0
    assert bucket.take(1, 0.0) == pytest.approx(2.1)
    assert bucket.take(1, 2.2) == 0.0


def test_a_refused_cost_takes_nothing():
    bucket = TokenBucket(rate=1.0, burst=5.0, now=0.0)
    bucket.take(3, 0.0)
    assert bucket.take(4, 0.0) > 0
    assert bucket.take(2, 0.0) == 0.0


def test_take_up_to_takes_whole_tokens_only():
    bucket = TokenBucket(rate=1.0, burst=3.0, now=0.0)
    assert (bucket.take_up_to(2, 0.0), bucket.take_up_to(2, 0.5)) == (2, 1)
    assert bucket.take_up_to(2, 0.5) == 0
    assert bucket.wait_seconds(1, 0.5) == 0.5


def test_returned_tokens_never_exceed_the_burst():
    bucket = TokenBucket(rate=1.0, burst=3.0, now=0.0)
    bucket.take_up_to(2, 0.0)
    bucket.give_back(100, 0.0)
    assert bucket.is_full(0.0)
    assert bucket.take_up_to(100, 0.0) == 3


def test_a_clock_that_goes_back_adds_nothing():
    bucket = TokenBucket(rate=1.0, burst=1.0, now=100.0)
    assert bucket.take(1, 100.0) == 0.0
    assert bucket.take(1, 0.0) == 1.0
    assert bucket.take(1, 0.5) == 0.5


@given(
    rate=st.floats(0.1, 100),
    burst=st.floats(1, 100),
    requests=st.lists(st.tuples(st.floats(0, 10), st.integers(1, 50)), max_size=50),
)
def test_bucket_never_allows_more_than_burst_and_rate(rate, burst, requests):
    bucket, now, taken = TokenBucket(rate, burst, 0.0), 0.0, 0
    for elapsed, count in requests:
        now += elapsed
        taken += bucket.take_up_to(count, now)
        assert taken <= max(burst, 1.0) + rate * now + 1e-6
