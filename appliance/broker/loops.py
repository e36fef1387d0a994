"""The broker's background loops: deliveries, leases, pruning, the orphan check."""

from collections.abc import Callable
from typing import Any

from appliance.broker import metrics, queries, retention, retention_writes
from appliance.broker.registry import PRUNED, Registry
from appliance.broker.service import BATCHES_MAX, Broker
from appliance.kernel.errors import Unavailable
from appliance.kernel.loop import Loop

PRUNE_HOURS = 24.0  # between prunings, and between orphan checks
PRUNED_ROWS_MAX = 500  # messages or ids deleted in one transaction
PRUNE_ROUNDS_MAX = 1_000  # transactions in one pruning


class Deliverer(Loop):
    """Writes acks and claims, and pushes claimed deliveries. Every commit and ack wakes it."""

    name = "broker_deliverer"
    interval_seconds = 1.0

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.clock, broker.log, work=broker.dispatch.work)
        self._broker = broker
        self._suspended_until = 0.0

    def run_once(self, now_ms: int) -> dict[str, int]:
        if self.clock.monotonic() < self._suspended_until:
            return {"batches": 0}
        batches = 0
        try:
            while batches < BATCHES_MAX and self._broker.deliver_batch():
                batches += 1
        except Unavailable as error:
            # The disk is full or the file is busy: the acks are written later.
            self._suspended_until = self.clock.monotonic() + (error.retry_after or 1.0)
            return {"batches": batches, "refused": 1}
        if self._broker.dispatch.has_work:
            self.nudge()
        return {"batches": batches}


class LeaseExpiry(Loop):
    """Ends leases that expired without an ack, so that the deliveries are made again."""

    name = "broker_leases"
    interval_seconds = 15.0

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.clock, broker.log)
        self._broker = broker

    def run_once(self, now_ms: int) -> dict[str, int]:
        expired = 0
        while (rows := self._broker.expire_leases()) > 0:
            expired += rows
        metrics.outstanding.set(self._broker.store.read(queries.outstanding))
        self._broker.signatures.prune()
        self._broker.save_nonces()
        return {"expired": expired}


class BrokerPruner(Loop):
    """Once a day: prunes messages and marks their ids as pruned, prunes expired ids, then
    checks for orphaned rows, which there must never be."""

    name = "broker_pruner"
    interval_seconds = 60.0

    def __init__(self, broker: Broker, registry: Registry) -> None:
        super().__init__(broker.clock, broker.log)
        self._broker = broker
        self._registry = registry

    def run_once(self, now_ms: int) -> dict[str, int]:
        last = self._broker.store.read(queries.noted_ms, PRUNED)
        if not retention.is_due(now_ms, last, PRUNE_HOURS):
            return {"messages": 0, "ids": 0}
        pruned = self.prune()
        self._registry.check_orphans()
        return pruned

    def prune(self) -> dict[str, int]:
        """Delete everything that is due now, in several transactions."""
        now_ms, store = self._broker.steady.now_ms(), self._broker.store
        steps: list[tuple[str, Callable[..., int], tuple[Any, ...]]] = []
        for mesh in self._broker.directory.by_id.values():
            before_ms = retention.oldest_kept_ms(now_ms, mesh.message_retention_days)
            steps.append(("messages", retention_writes.prune_messages, (mesh.id, before_ms)))
        steps.append(("ids", retention_writes.prune_ids, (now_ms,)))
        rounds, pruned = PRUNE_ROUNDS_MAX, {"messages": 0, "ids": 0}
        for what, function, arguments in steps:
            removed = PRUNED_ROWS_MAX
            while removed >= PRUNED_ROWS_MAX and rounds > 0:
                removed = store.write(function, *arguments, PRUNED_ROWS_MAX)
                pruned[what] += removed
                rounds -= 1
        if rounds > 0:
            store.write(retention_writes.note_time, PRUNED)
        for what, rows in pruned.items():
            metrics.pruned.labels(what).inc(rows)
        return pruned
