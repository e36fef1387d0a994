"""Metrics as text: in parts, kept for a second, one collection at a time."""

import gevent
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from appliance.kernel import metrics
from appliance.web.exposition import KEEP_SECONDS, OPENMETRICS, Exposition, _series, parts_of

SERIES = 700


@pytest.fixture
def registry(monkeypatch):
    registry = CollectorRegistry()
    monkeypatch.setattr(metrics, "REGISTRY", registry)
    latency = metrics.histogram("request_seconds", "Duration\nof a request", ("route",))
    requests = metrics.counter("requests_total", "Requests", ("route",))
    metrics.gauge("empty", "A labelled metric without series", ("route",))
    metrics.gauge("temperature", "Without labels").set(21.5)
    for value in ("\n", "\x85", "\u2028", "\\", '"', " 0.0", "é", ""):
        requests.labels(value).inc(0.5)
    for number in range(SERIES):
        latency.labels(f'/a/"{number}"').observe(number / 100)
        requests.labels(f"/a/{number}").inc()
    return registry


class Monotonic:
    now = 100.0

    def __call__(self):
        return self.now


def plain_text(registry):
    """The client library's text of each metric as a whole."""
    whole = CollectorRegistry()
    for collector in registry._collector_to_names:
        vars(collector).pop("collect", None)
        whole.register(collector)
    return generate_latest(whole), generate_openmetrics(whole)


def test_parts_make_the_same_text_as_the_library(registry):
    exposition = Exposition(registry, Monotonic())
    text, openmetrics = exposition.read("").text, exposition.read(OPENMETRICS).text
    whole, whole_openmetrics = plain_text(registry)
    assert sorted(text.splitlines()) == sorted(whole.splitlines())
    assert text == whole
    assert openmetrics == whole_openmetrics
    families = list(text_string_to_metric_families(openmetrics.decode()))
    assert sum(len(family.samples) for family in families) > SERIES * 14


def test_event_loop_runs_between_parts(registry):
    turns = []
    other = gevent.spawn(lambda: [turns.append(gevent.sleep(0)) for _ in range(10_000)])
    parts, seen = [], []
    for part in parts_of(registry, generate_latest):
        parts.append(part.count(b"\n"))
        seen.append(len(turns))
    other.kill()
    assert max(parts) <= metrics.PART_SAMPLES + 2
    assert len(set(seen)) > SERIES * 14 // metrics.PART_SAMPLES // 2


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_second_scrape_writes_no_label_again(registry, accept):
    clock = Monotonic()
    exposition = Exposition(registry, clock)
    first = exposition.read(accept).text
    known = _series.cache_info().misses
    clock.now += KEEP_SECONDS
    assert exposition.read(accept).text == first
    assert _series.cache_info().misses == known


def test_text_is_kept_for_a_second(registry):
    clock = Monotonic()
    exposition = Exposition(registry, clock)
    first = exposition.read("")
    metrics_before = len(first.text)
    clock.now += KEEP_SECONDS / 2
    assert exposition.read("text/plain; version=1.2.3") is first
    clock.now += KEEP_SECONDS / 2
    again = exposition.read("")
    assert again is not first
    assert len(again.text) == metrics_before


def test_callers_at_the_same_time_cause_one_collection(registry, monkeypatch):
    exposition = Exposition(registry, Monotonic())
    collected = []
    collect = registry.collect
    monkeypatch.setattr(registry, "collect", lambda: collected.append(1) or collect())
    greenlets = [gevent.spawn(exposition.read, f"{OPENMETRICS}; version={n}") for n in range(20)]
    gevent.joinall(greenlets, raise_error=True)
    assert len({id(each.value) for each in greenlets}) == 1
    assert len(collected) == 1


def test_failed_collection_leaves_the_next_one_possible(registry, monkeypatch):
    exposition = Exposition(registry, Monotonic())
    with monkeypatch.context() as patch:
        patch.setattr(registry, "collect", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            exposition.read("")
    assert exposition.read("").text
