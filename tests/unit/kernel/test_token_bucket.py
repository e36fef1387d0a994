"""The token bucket: bursts, average rate, debt, and a clock that jumps."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.kernel.token_bucket import TokenBucket


def test_bucket_allows_its_burst_and_then_its_rate():
    bucket = TokenBucket(rate=2.0, burst=3.0, now=0.0)
    assert [bucket.charge(1, 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert bucket.charge(1, 0.5) == 0.0


def test_a_clock_that_goes_back_adds_nothing():
    bucket = TokenBucket(rate=1.0, burst=1.0, now=100.0)
    assert bucket.charge(1, 100.0) == 0.0
    assert bucket.charge(1, 0.0) == 1.0
    assert bucket.charge(1, 0.5) == 0.5


@given(
    rate=st.floats(0.1, 100),
    burst=st.floats(1, 100),
    requests=st.lists(st.tuples(st.floats(0, 10), st.integers(1, 50)), max_size=50),
)
def test_bucket_never_allows_more_than_burst_and_rate(rate, burst, requests):
    bucket, now, taken = TokenBucket(rate, burst, 0.0), 0.0, 0
    for elapsed, count in requests:
        now += elapsed
        taken += sum(not bucket.charge(1, now) for _ in range(count))
        assert taken <= max(burst, 1.0) + rate * now + 1e-6
