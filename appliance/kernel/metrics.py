"""The one registry. Names are `agentlip_<subsystem>_<what>_<unit>`.

Labels come from closed sets only (route template, outcome, state), never from ids
or from names that users give.
"""

from collections.abc import Sequence
from typing import Any

import prometheus_client.metrics
import prometheus_client.values
from gevent import monkey
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from appliance.kernel.log import Dropped

# Counting is a few machine instructions under a lock and never waits for anything, so the
# lock may be the operating system's: gevent's costs more than the counting.
_lock: Any = monkey.get_original("_thread", "allocate_lock")
for _module in (prometheus_client.metrics, prometheus_client.values):
    setattr(_module, "Lock", _lock)  # noqa: B010 - neither exports it

REGISTRY = CollectorRegistry()
SECONDS_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


def counter(name: str, help_text: str, labels: Sequence[str] = ()) -> Counter:
    return Counter(f"agentlip_{name}", help_text, labels, registry=REGISTRY)


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
    return Histogram(f"agentlip_{name}", help_text, labels, buckets=buckets, registry=REGISTRY)
