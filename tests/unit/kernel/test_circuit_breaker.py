"""The circuit breaker: its probe, and what must hold for any order of calls."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.kernel.circuit_breaker import CircuitBreaker


def opened(failures_max: int = 2, open_seconds: float = 10.0) -> CircuitBreaker:
    breaker = CircuitBreaker(failures_max)
    for _ in range(failures_max):
        breaker.note_failure(0.0, open_seconds)
    return breaker


def test_half_open_breaker_allows_one_probe_at_a_time():
    breaker = opened()
    assert breaker.state(10.0) == "half-open"
    breaker.begin()
    assert breaker.state(10.0) == "open"


CALLS = ["begin", "note_success", "note_failure"]


@given(
    failures_max=st.integers(1, 5),
    calls=st.lists(st.tuples(st.sampled_from(CALLS), st.integers(0, 9))),
)
def test_closed_breaker_has_fewer_failures_than_allowed(failures_max, calls):
    breaker, now = CircuitBreaker(failures_max), 0.0
    for call, seconds in calls:
        now += seconds
        if call == "note_failure":
            breaker.note_failure(now, 3.0)
        else:
            getattr(breaker, call)()
        assert breaker.is_closed == (breaker.failures < failures_max)
        assert (breaker.state(now) == "closed") == breaker.is_closed
        assert 0 <= breaker.seconds_left(now) <= 3.0
