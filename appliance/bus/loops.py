"""Runs the worker bus in the background: notices other programs, exports, and prunes."""

from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

from appliance.bus import metrics, queries
from appliance.bus.service import Bus
from appliance.bus.settings import BusSettings
from appliance.busfile import jsonl, messages, retention
from appliance.busfile.file import BusBusy, BusMissing, BusPaths, connect, transaction
from appliance.kernel.clock import DAY_MS, Clock
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.store import Store
from appliance.kernel.store_errors import StoreAbsent
from appliance.kernel.threads import in_thread

WATCH_SECONDS = 0.1  # a foreign message reaches waiting callers within a quarter second
IDLE_SECONDS = 3600.0  # `Bus.awaited` ends the pause


class BusWatcher(Loop):
    """Reads, while somebody waits, a number that SQLite changes with any program's commit."""

    name = "bus_watcher"

    def __init__(self, bus: Bus, store: Store, clock: Clock, log: Log) -> None:
        super().__init__(clock, log, bus.awaited)
        self._bus = bus
        self._store = store
        self._version: tuple[int, int] | None = None

    def run_once(self, now_ms: int) -> dict[str, int]:
        self.interval_seconds = WATCH_SECONDS if self._bus.waiting else IDLE_SECONDS
        if self._bus.waiting:
            with suppress(StoreAbsent):
                version = self._store.read(queries.version)
                if version != self._version:
                    self._version = version
                    self._bus.note_commit(version[1])
                    return {"commits": 1}
        return {"commits": 0}


class BusExporter(Loop):
    """Appends new messages to bus.jsonl. Another program may do so too; one of them is enough."""

    name = "bus_exporter"
    interval_seconds = 10.0

    def __init__(self, paths: BusPaths, store: Store, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._paths = paths
        self._store = store
        self._head = 0

    def run_once(self, now_ms: int) -> dict[str, int]:
        count = 0
        with suppress(StoreAbsent, jsonl.ExportRunning):
            head = self._store.read(messages.head)
            if head != self._head:
                count = in_thread(_export, self._paths)
                self._head = head
        metrics.exported.inc(count)
        return {"messages": count}


class BusMeter(Loop):
    """Counts the file's numbers for the metrics."""

    name = "bus_meter"
    interval_seconds = 15.0

    def __init__(self, store: Store, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._store = store

    def run_once(self, now_ms: int) -> dict[str, int]:
        with suppress(StoreAbsent):
            stored, lags, expired, states = self._store.read_slow(queries.measure, now_ms)
            metrics.stored.set(stored)
            metrics.expired.set(expired)
            metrics.show_lags(lags)
            for state, count in states.items():
                metrics.workers.labels(state).set(count)
        return {}


class BusPruner(Loop):
    """Prunes messages older than `bus.retention_days` that every live agent has acked, and that
    are in a segment if the appliance writes segments. Then returns free space to the disk.

    The loop has its own connection in a thread, so that it delays no write in the appliance.
    """

    name = "bus_pruner"
    interval_seconds = 600.0

    def __init__(
        self,
        paths: BusPaths,
        settings: BusSettings,
        segments: Callable[[], int | None],
        clock: Clock,
        log: Log,
    ) -> None:
        super().__init__(clock, log)
        self._paths = paths
        self._age_ms = int(settings.retention_days * DAY_MS)
        self._exports = settings.export
        self._segments = segments

    def run_once(self, now_ms: int) -> dict[str, int]:
        counts = {"messages": 0, "vacuums": 0}
        with suppress(BusMissing, BusBusy):  # the next round tries again
            in_thread(self._prune, counts)
        metrics.pruned.inc(counts["messages"])
        return counts

    def _prune(self, counts: dict[str, int]) -> None:
        with closing(connect(self._paths, create=False)) as connection:
            if self._exports:  # only messages in the file are pruned
                with suppress(jsonl.ExportRunning):
                    jsonl.export(connection, self._paths)
            with transaction(connection):
                retention.hold(connection, self._segments())
            counts["messages"] = retention.prune_all(connection, self.clock, self._age_ms)
            counts["vacuums"] = int(retention.vacuum(connection))


def _export(paths: BusPaths) -> Any:
    with closing(connect(paths, durable=True, create=False)) as connection:
        return jsonl.export(connection, paths)
