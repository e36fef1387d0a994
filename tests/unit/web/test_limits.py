"""Fixed windows, debts, fairness and memory of the rate limiter."""

import pytest

from appliance.web import limits
from appliance.web.limits import RateLimited, RateLimiter, network_of
from appliance.web.settings import LimitSettings
from tests.support.clock import FakeClock


def limiter(clock: FakeClock, **limits: float) -> RateLimiter:
    return RateLimiter(LimitSettings(**{"per_connection": 0, "global_": 0, **limits}), clock)


def admitted(rates: RateLimiter, times: int, connection: str = "c", **more: object) -> int:
    count = 0
    for _ in range(times):
        try:
            rates.take(connection, more.get("token", "p"), str(more.get("address", "a")))  # type: ignore[arg-type]
        except RateLimited:
            continue
        count += 1
    return count


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_700_000_000_000)


def test_limiter_without_limits_admits_everything(clock: FakeClock) -> None:
    assert limiter(clock).take("c", "p", "a", cost=10**9) is None


@pytest.mark.parametrize(
    ("name", "same", "other"),
    [
        ("per_connection", {"connection": "1"}, {"connection": "2"}),
        ("per_token", {"token": "1"}, {"token": "2"}),
        ("per_address", {"address": "1"}, {"address": "2"}),
    ],
)
def test_each_limit_counts_its_own_key(clock, name, same, other):
    rates = limiter(clock, **{name: 5})
    assert admitted(rates, 9, **same) == 5  # type: ignore[arg-type]
    assert admitted(rates, 9, **other) == 5  # type: ignore[arg-type]


def test_global_counts_all(clock: FakeClock) -> None:
    rates = limiter(clock, global_=7)
    assert admitted(rates, 5, "1") + admitted(rates, 5, "2") == 7


def test_window_is_the_second_of_the_clock(clock: FakeClock) -> None:
    rates = limiter(clock, per_connection=2)
    clock.tick(999)
    assert admitted(rates, 3) == 2
    clock.tick(1)
    assert admitted(rates, 3) == 2


def test_clock_that_goes_back_opens_a_window(clock: FakeClock) -> None:
    rates = limiter(clock, per_connection=2)
    assert admitted(rates, 3) == 2
    clock.tick(-5000)
    assert admitted(rates, 3) == 2


def test_refused_requests_use_up_nobody_s_budget(clock: FakeClock) -> None:
    rates = limiter(clock, per_connection=10, global_=30)
    assert admitted(rates, 1000, "flood") == 10
    assert admitted(rates, 10, "calm") == 10
    assert admitted(rates, 10, "other") == 10
    assert admitted(rates, 10, "late") == 0


def test_headers_show_the_tightest_limit(clock: FakeClock) -> None:
    rates = limiter(clock, per_connection=10, global_=12)
    allowances = [rates.take(c, "p", "a") for c in "1112"]
    assert [(t.limit, t.remaining) for t in allowances if t] == [(10, 9), (10, 8), (10, 7), (12, 8)]
    assert allowances[0] is not None
    assert allowances[0].reset_iso == "2023-11-14T22:13:21.000Z"


def test_anonymous_callers_share_no_token_limit(clock: FakeClock) -> None:
    rates = limiter(clock, per_token=1)
    assert all(rates.take("c", None, "a") is None for _ in range(5))


def test_request_is_not_counted_twice(clock: FakeClock) -> None:
    rates = limiter(clock, per_connection=10)
    rates.take("c", "p", "a")
    allowances = rates.take("c", "p", "a", cost=10, counted=1)
    assert allowances is not None
    assert allowances.remaining == 0


def test_oversized_batch_is_admitted_into_a_fresh_window_and_paid_off(clock: FakeClock) -> None:
    rates = limiter(clock, per_connection=100)
    rates.take("c", "p", "a", cost=350)
    with pytest.raises(RateLimited) as caught:
        rates.take("c", "p", "a")
    assert caught.value.retry_after == 3.0  # 250, 150, then 50 of 100 are owed
    clock.tick(2000)
    assert admitted(rates, 1) == 0
    clock.tick(1000)
    assert admitted(rates, 99) == 50
    clock.tick(1000)
    assert admitted(rates, 200) == 100


def test_retry_after_is_enough_for_any_cost(clock: FakeClock) -> None:
    for first, second in ((350, 100), (350, 350), (100, 100), (199, 1), (200, 1), (201, 50)):
        rates = limiter(clock, per_connection=100)
        rates.take("c", "p", "a", cost=first)
        with pytest.raises(RateLimited) as caught:
            rates.take("c", "p", "a", cost=second)
        assert caught.value.retry_after is not None
        clock.tick(round(caught.value.retry_after * 1000) - 1)
        with pytest.raises(RateLimited):
            rates.take("c", "p", "a", cost=second)
        clock.tick(1)
        rates.take("c", "p", "a", cost=second)
        clock.tick(60_000)


def test_counts_are_kept_for_one_window_only(clock: FakeClock) -> None:
    rates = limiter(clock, per_connection=10, per_address=10)
    for n in range(5000):
        rates.take(f"c{n}", "p", f"a{n}")
    clock.tick(1000)
    rates.take("c", "p", "a")
    assert [len(used_by) for _, _, used_by in rates._tables] == [1, 1]


def failed(rates: RateLimiter, times: int, address: str) -> int:
    count = 0
    for _ in range(times):
        try:
            rates.fail(address)
        except RateLimited:
            continue
        count += 1
    return count


def test_requests_without_a_token_use_only_their_share_of_the_limit_for_all(clock):
    rates = limiter(clock, global_=10)
    assert admitted(rates, 100, token=None) == 5
    assert admitted(rates, 100, token="p") == 5
    clock.tick(1000)
    assert admitted(rates, 100, token="p") == 10
    assert admitted(rates, 100, token=None) == 0


def test_smallest_share_is_one_request(clock: FakeClock) -> None:
    rates = limiter(clock, global_=1)
    assert admitted(rates, 5, token=None) == 1


def test_refusal_names_the_limit_without_a_token(clock: FakeClock) -> None:
    rates = limiter(clock, global_=2)
    rates.take("c", None, "a")
    with pytest.raises(RateLimited) as caught:
        rates.take("c", None, "a")
    assert caught.value.details["scope"] == "unauthenticated"
    assert caught.value.details["limit"] == 1


def test_failures_are_counted_for_each_address(clock: FakeClock) -> None:
    rates = limiter(clock, global_=10, failures_per_address=3)
    assert failed(rates, 9, "192.0.2.1") == 3
    assert failed(rates, 9, "192.0.2.2") == 3
    assert admitted(rates, 10, address="192.0.2.1") == 10
    clock.tick(1000)
    assert failed(rates, 9, "192.0.2.1") == 3


def test_failures_without_any_other_limit(clock: FakeClock) -> None:
    assert failed(limiter(clock, failures_per_address=2), 5, "a") == 2
    assert failed(limiter(clock, failures_per_address=0), 5, "a") == 5


def test_addresses_of_one_ipv6_network_are_one(clock: FakeClock) -> None:
    rates = limiter(clock, per_address=2, failures_per_address=2)
    for name in ("2001:db8::1", "2001:db8::2"):
        rates.fail(name)
        assert admitted(rates, 1, address=name) == 1
    assert failed(rates, 5, "2001:db8:0:0:ffff::3") == 0
    assert admitted(rates, 5, address="2001:db8:0:0:ffff::3") == 0
    assert failed(rates, 5, "2001:db8:0:1::3") == 2


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::1", "::"),
        ("unix:", "unix:"),
    ],
)
def test_network_of(address: str, network: str) -> None:
    assert network_of(address) == network


def test_remembered_addresses_are_bounded(clock, monkeypatch):
    monkeypatch.setattr(limits, "ADDRESSES_MAX", 10)
    rates = limiter(clock, per_address=5, failures_per_address=5)
    for n in range(1000):
        failed(rates, 1, f"a{n}")
        admitted(rates, 1, address=f"a{n}")
    assert len(rates._failures) == 11
    assert len(rates._counts["address"]) == 11
    assert failed(rates, 5, "a0") == 4
    assert failed(rates, 5, "another") == 0


def test_signed_request_does_not_count_against_the_unauthenticated_share(clock: FakeClock) -> None:
    rates = limiter(clock, global_=4)
    rates.uncount("unauthenticated")
    rates.take("c", None, "a")
    rates.take("c", None, "a")
    rates.uncount("unauthenticated")
    assert admitted(rates, 5, token=None) == 1
