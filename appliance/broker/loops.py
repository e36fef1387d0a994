"""The broker's background loops: deliveries, leases, retention, the orphan check."""

from appliance.broker import metrics, queries, retention, retention_writes
from appliance.broker.registry import SWEPT, Registry
from appliance.broker.service import BATCHES_MAX, Broker
from appliance.kernel.errors import Unavailable
from appliance.kernel.loop import Loop

CHECKED = "checked_ms"
PRUNE_HOURS = 24.0  # between deletions of expired messages and ids, and checks for orphans
PRUNED_ROWS_MAX = 500  # messages or ids deleted in one transaction
PRUNE_ROUNDS_MAX = 1_000  # transactions of one deletion of expired rows


class Deliverer(Loop):
    """Writes acks and claims, and pushes what was claimed. Every commit and ack wakes it."""

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


class LeaseSweeper(Loop):
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
        self._broker.signatures.forget()
        self._broker.save_nonces()
        return {"expired": expired}


class DedupeRetention(Loop):
    """Deletes old messages and marks their ids as pruned, then deletes expired ids; once a day."""

    name = "broker_retention"
    interval_seconds = 60.0

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.clock, broker.log)
        self._broker = broker

    def run_once(self, now_ms: int) -> dict[str, int]:
        broker = self._broker
        last = broker.store.read(queries.noted_ms, SWEPT)
        if not retention.is_due(now_ms, last, PRUNE_HOURS):
            return {"messages": 0, "ids": 0}
        return self.sweep()

    def sweep(self) -> dict[str, int]:
        """Delete everything that is due now, in several transactions."""
        now_ms = self._broker.steady.now_ms()
        store, rounds, limit = self._broker.store, PRUNE_ROUNDS_MAX, PRUNED_ROWS_MAX
        messages = ids = 0
        for mesh in list(self._broker.directory.by_id.values()):
            before_ms = retention.oldest_kept_ms(now_ms, mesh.message_retention_days)
            removed = limit
            while removed >= limit and rounds > 0:
                removed = store.write(
                    retention_writes.sweep_messages,
                    *(mesh.id, before_ms, limit),
                )
                messages += removed
                rounds -= 1
        removed = limit
        while removed >= limit and rounds > 0:
            removed = store.write(retention_writes.sweep_dedupe, now_ms, limit)
            ids += removed
            rounds -= 1
        if rounds > 0:
            store.write(retention_writes.note_time, SWEPT)
        metrics.swept.labels("messages").inc(messages)
        metrics.swept.labels("ids").inc(ids)
        return {"messages": messages, "ids": ids}


class OrphanCheck(Loop):
    """Checks for orphaned rows once a day. There must never be any."""

    name = "broker_orphans"
    interval_seconds = 60.0

    def __init__(self, broker: Broker, registry: Registry) -> None:
        super().__init__(broker.clock, broker.log)
        self._broker = broker
        self._registry = registry

    def run_once(self, now_ms: int) -> dict[str, int]:
        store = self._broker.store
        if not retention.is_due(now_ms, store.read(queries.noted_ms, CHECKED), PRUNE_HOURS):
            return {"orphans": self._registry.orphan_count or 0}
        # Noted first, so that a check that takes too long is not repeated at once.
        store.write(retention_writes.note_time, CHECKED)
        return {"orphans": len(self._registry.orphans().orphans)}
