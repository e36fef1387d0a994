"""Rates and lags: what one hour of samples says, within its limits."""

from functools import partial
from itertools import pairwise

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge

from appliance.operations.metrics import totals
from appliance.operations.rates import (
    INTERVAL_SECONDS,
    RANGES,
    SAMPLES_MAX,
    SERIES,
    RecentRates,
)
from tests.contract.test_alerts import known
from tests.support.clock import FakeClock


class Watched:
    def __init__(self):
        self.clock = FakeClock()
        self.registry = CollectorRegistry()
        labels = ("verb", "outcome")
        self.changes = Counter("agentlip_hub_mutations", "-", labels, registry=self.registry)
        self.depth = Gauge("agentlip_outbox_depth_sends", "-", ("status",), registry=self.registry)
        self.rates = RecentRates(partial(totals, self.registry), self.clock.monotonic)
        self.rates.sample(self.clock.now_ms())

    def pass_interval(self, changes=0):
        self.changes.labels("post", "ok").inc(changes)
        self.changes.labels("edit", "ok").inc(changes)
        self.clock.pass_seconds(INTERVAL_SECONDS)
        self.rates.sample(self.clock.now_ms())

    def values(self, name, after=None):
        series = {each.name: each.values for each in self.rates.rates(after).series}
        return series[name]


@pytest.fixture
def watched():
    return Watched()


def test_counter_is_shown_as_its_rate_over_all_labels(watched):
    watched.pass_interval(5)
    watched.pass_interval()
    assert watched.values("changes") == [1.0, 0.0]


def test_samples_are_those_of_one_hour(watched):
    for _ in range(SAMPLES_MAX + 10):
        watched.pass_interval(1)
    rates = watched.rates.rates()
    assert len(rates.at_ms) == SAMPLES_MAX - 1 == 3600 / INTERVAL_SECONDS
    assert {len(each.values) for each in rates.series} == {len(rates.at_ms)}


def test_client_gets_what_it_does_not_have(watched):
    for changes in (10, 20, 30):
        watched.pass_interval(changes)
    known = watched.rates.rates().at_ms[1]
    assert watched.values("changes", known) == [6.0]
    assert watched.values("changes", known + 1) == [2.0, 4.0, 6.0]


def test_clock_that_goes_back_changes_no_rate(watched):
    watched.clock.ms -= 3_600_000
    watched.pass_interval(5)
    assert watched.values("changes") == [1.0]


def test_every_metric_exists():
    process = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
    assert {each.metric for each in SERIES} - known().keys() == process
    assert len({each.name for each in SERIES}) == len(SERIES)


def test_day_has_a_rate_for_each_five_minutes_and_the_newest_sample(watched):
    for _ in range(62):
        watched.pass_interval(15)
    rates = watched.rates.rates(span="24h")
    assert rates.interval_seconds == 300
    assert [later - first for first, later in pairwise(rates.at_ms)] == [300_000, 20_000]
    assert next(each for each in rates.series if each.name == "changes").values == [3.0] * 3


def test_ranges_before_their_second_sample_have_the_newest(watched):
    watched.pass_interval(5)
    assert [len(watched.rates.rates(span=span).at_ms) for span in RANGES] == [1, 1, 1]


def test_week_is_not_longer_than_seven_days(watched):
    for _ in range(7 * 8640 + 500):
        watched.rates.sample(watched.clock.now_ms())
        watched.clock.pass_seconds(INTERVAL_SECONDS)
    at_ms = watched.rates.rates(span="7d").at_ms
    assert 6.9 < (at_ms[-1] - at_ms[0]) / 86_400_000 <= 7.01
