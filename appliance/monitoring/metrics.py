"""The running appliance's facts as metrics, each once; and the build.

The doctor's checks read the same facts, so an alert and a finding agree. GROUPS explains each
process metric; a subsystem's `facts_help` explains that subsystem's facts.
"""

import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import appliance
from appliance.build import commit
from appliance.kernel.metrics import REGISTRY, gauge
from appliance.kernel.subsystem import Subsystem

Facts = Mapping[str, float]
Family = GaugeMetricFamily | CounterMetricFamily


class FactGroup(NamedTuple):
    """Facts with one label. `helps`: the fact's name → the metric's meaning. `label` has the
    first part from the full name: `hub.wal_bytes` belongs to the store `hub`."""

    prefix: str
    label: str
    helps: Mapping[str, str]


STORES = FactGroup("store_", "store", {
    "bytes": "Database file size, without the write-ahead log",
    "detached": "1 if a store file was removed or replaced",
    "queue_jobs": "Writes that wait or run",
    "read_only": "1 if no store is written",
    "stalled_seconds": "How long the writer has had work without finishing a batch",
    "stalled_seconds_max": "From this on, new writes are refused",
    "suspect": "1 if damage was found while the store was in use",
    "suspended": "1 if the store is damaged and is not served",
    "wal_bytes": "Write-ahead log size",
    "writer_alive": "1 while the store's writer runs",
    "writer_restarts": "Store writer restarts",
    "writing_paused": "1 while the disk takes no writes",
})  # fmt: skip
ROLES = FactGroup("role_", "role", {"off": "1 for a role that is switched off"})
OTHERS = FactGroup("", "", {
    "disk_free_bytes": "Free space in the file system with `.agentlip`",
    "disk_size_bytes": "Size of the file system with `.agentlip`; 0 if unknown",
    "lock_intact": "1 while the writer lock file is in place",
    "loop_delay_seconds": "Largest event loop delay in the last 10 s",
    "stopping": "1 while the appliance stops",
    "socket_open_max": "The most WebSockets that were open at once since the start",
})  # fmt: skip
GROUPS = (STORES, ROLES, OTHERS)
COUNTERS = frozenset({"store_writer_restarts"})


def metric_of(fact: str) -> tuple[str, str]:
    """Return a fact's metric, without `agentlip_`, and the label's value."""
    owner, _, name = fact.rpartition(".")
    if owner == "off":
        return "role_off", name
    if owner.startswith("plugin."):
        return f"plugins_{name}", owner.removeprefix("plugin.")
    if name in STORES.helps and owner:
        return f"store_{name}", owner
    return fact.replace(".", "_"), ""


class FactCollector(Collector):
    """A collector that reads the facts at each scrape. One process has one appliance."""

    def __init__(self) -> None:
        self._read: Callable[[], Facts] = dict

    def watch(self, read: Callable[[], Facts]) -> None:
        self._read = read

    def describe(self) -> Iterable[Metric]:
        return _families().values()

    def collect(self) -> Iterable[Metric]:
        families = _families()
        for fact, value in self._read().items():
            name, label = metric_of(fact)
            if name in families:
                families[name].add_metric([label] if label else [], value)
        return families.values()


def _families() -> dict[str, Family]:
    families = {}
    for group in GROUPS:
        labels = [group.label] if group.label else []
        for fact, text in group.helps.items():
            families[group.prefix + fact] = _family(group.prefix + fact, text, labels)
    for subsystem in Subsystem.__subclasses__():
        for fact, text in subsystem.facts_help.items():
            name, label = metric_of(fact)
            families[name] = _family(name, text, [fact.partition(".")[0]] if label else [])
    return families


def _family(name: str, text: str, labels: Sequence[str]) -> Family:
    kind = CounterMetricFamily if name in COUNTERS else GaugeMetricFamily
    return kind(f"agentlip_{name}", text, labels=labels)


def disk_facts(folder: Path) -> dict[str, float]:
    """Return the space on a folder's file system, or nothing if unreadable."""
    try:
        volume = os.statvfs(folder)
    except OSError:
        return {}
    unit = float(volume.f_frsize)
    return {"disk_free_bytes": volume.f_bavail * unit, "disk_size_bytes": volume.f_blocks * unit}


_collector = FactCollector()
REGISTRY.register(_collector)
for _standard in (ProcessCollector, GCCollector, PlatformCollector):
    _standard(registry=REGISTRY)
_build = gauge("build_info", "The running version; always 1", ("version", "commit", "python"))
_build.labels(appliance.__version__, commit()[0], platform.python_version()).set(1)
watch_facts = _collector.watch
