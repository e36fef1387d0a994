"""Fixed windows, debts, fairness and memory of the rate limiter."""

import contextlib
from collections.abc import Callable

import pytest

from appliance.web import limits
from appliance.web.limits import RateLimited, RateLimiter
from appliance.web.settings import LimitSettings
from tests.support.clock import FakeClock


def limiter(clock: FakeClock, **limits: float) -> RateLimiter:
    return RateLimiter(LimitSettings(**{"per_connection": 0, "global_": 0, **limits}), clock)


def admitted(
    rates: RateLimiter,
    times: int,
    connection: str = "c",
    *,
    token: str | None = "p",
    address: str = "a",
) -> int:
    return count_passed(times, lambda: rates.charge(connection, token, address))


def count_passed(times: int, call: Callable[[], object]) -> int:
    """How many calls were not limited."""
    count = 0
    for _ in range(times):
        with contextlib.suppress(RateLimited):
            call()
            count += 1
    return count


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_700_000_000_000)


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


def test_oversized_batch_is_admitted_into_a_fresh_window_and_paid_off(clock: FakeClock) -> None:
    rates = limiter(clock, per_connection=100)
    rates.charge("c", "p", "a", cost=350)
    with pytest.raises(RateLimited) as caught:
        rates.charge("c", "p", "a")
    assert caught.value.retry_after == 3.0  # 250, 150, then 50 of 100 are owed
    clock.tick(2000)
    assert admitted(rates, 1) == 0
    clock.tick(1000)
    assert admitted(rates, 99) == 50
    clock.tick(1000)
    assert admitted(rates, 200) == 100


def failed(rates: RateLimiter, times: int, address: str) -> int:
    return count_passed(times, lambda: rates.fail(address))


def test_requests_without_token_use_limited_share(clock):
    rates = limiter(clock, global_=10)
    assert admitted(rates, 100, token=None) == 5
    assert admitted(rates, 100, token="p") == 5
    clock.tick(1000)
    assert admitted(rates, 100, token="p") == 10
    assert admitted(rates, 100, token=None) == 0


def test_failures_are_counted_for_each_address(clock: FakeClock) -> None:
    rates = limiter(clock, global_=10, failures_per_address=3)
    assert failed(rates, 9, "192.0.2.1") == 3
    assert failed(rates, 9, "192.0.2.2") == 3
    assert admitted(rates, 10, address="192.0.2.1") == 10
    clock.tick(1000)
    assert failed(rates, 9, "192.0.2.1") == 3


def test_addresses_of_one_ipv6_network_are_one(clock: FakeClock) -> None:
    rates = limiter(clock, per_address=2, failures_per_address=2)
    for name in ("2001:db8::1", "2001:db8::2"):
        rates.fail(name)
        assert admitted(rates, 1, address=name) == 1
    assert failed(rates, 5, "2001:db8:0:0:ffff::3") == 0
    assert admitted(rates, 5, address="2001:db8:0:0:ffff::3") == 0
    assert failed(rates, 5, "2001:db8:0:1::3") == 2


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


def test_open_routes_are_limited_by_network_and_in_memory(clock, monkeypatch):
    monkeypatch.setattr(limits, "ADDRESSES_MAX", 3)
    rates = limiter(clock, per_connection=5)

    def opened(*addresses: str, cost: int = 1) -> int:
        count = 0
        for address in addresses:
            with contextlib.suppress(RateLimited):
                rates.take_open(address, cost)
                count += 1
        return count

    assert opened(*(f"2001:db8::{n:x}" for n in range(20))) == 10, "one /64 network"
    assert opened(*(f"2001:db8:0:{n:x}::1" for n in range(1, 40))) == 12, "the rest share a count"
    clock.tick(1000)
    assert opened("192.0.2.1", cost=20) == 1, "a cost above the limit passes once"
    assert opened("192.0.2.1") == 0
    assert opened("192.0.2.2") == 1
    assert limiter(clock).take_open("192.0.2.1") is None
