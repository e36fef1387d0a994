"""Registers all metrics. Names are `agentlip_<subsystem>_<what>_<unit>`.

Label values come from closed sets (route template, outcome, state), never from ids. Names that
users choose are labels only where their number is limited.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import islice
from typing import Any, TypeVar, cast

import prometheus_client.metrics
import prometheus_client.values
from gevent import monkey
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.core import Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.samples import Sample

from appliance.kernel.log import Dropped

# Counting takes a few instructions under a lock and never waits, so the operating system's lock
# is enough. gevent's lock would cost more than the counting.
_lock: Any = monkey.get_original("_thread", "allocate_lock")
for _module in (prometheus_client.metrics, prometheus_client.values):
    setattr(_module, "Lock", _lock)  # noqa: B010 - neither exports it

disable_created_metrics()  # type: ignore[no-untyped-call]  # a tenth of all series, which no query needs
REGISTRY = CollectorRegistry()
PART_SAMPLES = 200
"""Samples that are collected at once; with their text they take a millisecond."""
SECONDS_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


M = TypeVar("M", bound=MetricWrapperBase)


def counter(
    name: str, help_text: str, labels: Sequence[str] = (), *, zeros: Sequence[str] = ()
) -> Counter:
    """Create a counter. `zeros`: values for a single label that have a series from the start, so
    that the first event is an increase, as alerts need."""
    made = Counter(f"agentlip_{name}", help_text, labels, registry=REGISTRY)
    for value in zeros:
        made.labels(value)
    return _prepare(made)


def gauge(name: str, help_text: str, labels: Sequence[str] = ()) -> Gauge:
    return Gauge(f"agentlip_{name}", help_text, labels, registry=REGISTRY)


_dropped = gauge("log_dropped_lines", "Log lines that could not be written since the start")
_dropped.set_function(lambda: Dropped.lines)


def histogram(
    name: str,
    help_text: str,
    labels: Sequence[str] = (),
    buckets: Sequence[float] = SECONDS_BUCKETS,
) -> Histogram:
    made = Histogram(f"agentlip_{name}", help_text, labels, buckets=buckets, registry=REGISTRY)
    return _prepare(made)


def _prepare(metric: M) -> M:
    """Make a metric's `labels` faster, and let `collect` yield its samples in parts."""
    vars(metric)["labels"] = cache(metric.labels)  # finding a series takes longer than counting
    vars(metric)["collect"] = partial(_collect, metric)
    return metric


def _collect(metric: MetricWrapperBase) -> Iterator[Metric]:
    samples, empty = _read_samples(metric), cast(Callable[[], Metric], metric._get_metric)
    while part := list(islice(samples, PART_SAMPLES)):
        family = empty()
        family.samples = part
        yield family


def _read_samples(metric: MetricWrapperBase) -> Iterator[Sample]:
    """Yield all samples. The library would make each twice, which takes a third of a scrape."""
    series = [*metric._metrics.items()] if metric._labelnames else [((), metric)]
    for values, child in series:
        labels = dict(zip(metric._labelnames, values, strict=True))
        for suffix, extra, value, *_ in child._samples():
            yield Sample(metric._name + suffix, labels | extra, value)
