"""Unsent bytes of all clients are limited; the largest and oldest shares are cut off."""

import pytest

from appliance.web.unsent import Unsent, UnsentBudget


class Clock:
    seconds = 0.0

    def monotonic(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def cut():
    return []


@pytest.fixture
def share_of(clock, cut):
    """Begins to hold bytes under a name; the share."""
    budget = UnsentBudget(100, clock)

    def begin(name, size):
        share = Unsent(budget, "http", lambda: cut.append(name))
        share.set_size(size)
        return share

    begin.budget = budget
    return begin


def test_largest_and_oldest_share_is_cut_off_first(share_of, clock, cut):
    share_of("old and small", 10)
    share_of("old and large", 50)
    clock.seconds = 10
    share_of("new and large", 40)
    assert cut == []
    share_of("new", 30)
    assert cut == ["old and large"]
    assert share_of.budget.total == 80


def test_slow_reading_does_not_reset_the_age_of_a_share(share_of, clock, cut):
    dripping = share_of("dripping", 60)
    clock.seconds = 10
    share_of("newer", 40)
    dripping.set_size(59)
    clock.seconds = 11
    share_of("newest", 40)
    assert cut == ["dripping"]
