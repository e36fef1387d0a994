"""The broker's background work: delivering, webhooks, leases, retention, the orphan check."""

from appliance.broker import metrics, queries, retention, writes
from appliance.broker.registry import Registry
from appliance.broker.service import TURNS_MAX, Broker
from appliance.kernel.errors import ApplianceError, Unavailable
from appliance.kernel.loop import Loop

FIRST_PAUSE_MS = 1000


class Deliverer(Loop):
    """Writes acks and claims, and hands out what was claimed. Woken by every commit and ack."""

    name = "broker_deliverer"
    jitter = 0.0

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.clock, broker.log)
        self._broker = broker
        self.interval_seconds = broker.settings.deliver_seconds
        broker.dispatch.wake = self.nudge
        self._quiet_until = 0.0

    def run_once(self, now_ms: int) -> dict[str, int]:
        if self.clock.monotonic() < self._quiet_until:
            return {"turns": 0}
        turns = 0
        try:
            while turns < TURNS_MAX and self._broker.turn():
                turns += 1
        except Unavailable as error:
            # The disk is full or the file is busy: acks stay, and wait.
            self._quiet_until = self.clock.monotonic() + (error.retry_after or 1.0)
            return {"turns": turns, "refused": 1}
        if self._broker.dispatch.has_work:
            self.nudge()
        return {"turns": turns}


class LeaseSweeper(Loop):
    """What was pushed and not acked within the lease is delivered again."""

    name = "broker_leases"

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.clock, broker.log)
        self._broker = broker
        self.interval_seconds = broker.settings.sweep_seconds

    def run_once(self, now_ms: int) -> dict[str, int]:
        expired = 0
        while (found := self._broker.expire_leases()) > 0:
            expired += found
        return {"expired": expired}


class HookDeliverer(Loop):
    """Hands deliveries for webhooks to the sink, which takes each over for good or does not."""

    name = "broker_hooks"

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.clock, broker.log)
        self._broker = broker
        self.interval_seconds = broker.settings.deliver_seconds
        broker.dispatch.wake_hooks = self.nudge

    def run_once(self, now_ms: int) -> dict[str, int]:
        broker = self._broker
        if broker.hook_sink is None:
            return {"taken": 0, "failed": 0}
        rows = broker.store.read(queries.waiting_hooks, now_ms, broker.settings.webhook_rows_max)
        taken = failed = 0
        for id_, mesh_id, recipient, message_id, kind, attempts in rows:
            done = self._hand_over(mesh_id, recipient, message_id, kind)
            most = int(broker.settings.retry_seconds_max * 1000)
            pause_ms = min(FIRST_PAUSE_MS * 2 ** min(attempts, 20), most)
            broker.store.write(writes.finish_hook, id_, done, pause_ms)
            taken += done
            failed += not done
        metrics.deliveries.labels("hook_taken").inc(taken)
        metrics.deliveries.labels("hook_failed").inc(failed)
        if len(rows) == broker.settings.webhook_rows_max:
            self.nudge()
        return {"taken": taken, "failed": failed}

    def _hand_over(self, mesh_id: str, recipient: str, message_id: str, kind: str) -> bool:
        """True also when there is nothing left to deliver, or nobody to deliver it to."""
        broker = self._broker
        mesh = broker.directory.by_id[mesh_id]
        hook_id = recipient.removeprefix("webhook:")
        url = broker.store.read(queries.hook_url, mesh_id, hook_id)
        push = broker.store.read(queries.message, mesh.slug, message_id, kind)
        if url is None or push is None or broker.hook_sink is None:
            return True
        try:
            return broker.hook_sink(url, push)
        except ApplianceError:
            return False
        except Exception as error:
            self.log.error("a webhook's delivery was not taken", error)
            return False


class DedupeRetention(Loop):
    """Once a day: old messages go, their ids say so; then ids whose time is over are forgotten."""

    name = "broker_retention"
    interval_seconds = 60.0

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.clock, broker.log)
        self._broker = broker

    def run_once(self, now_ms: int) -> dict[str, int]:
        broker = self._broker
        last = broker.store.read(queries.meta, "swept_ms")
        hours = broker.settings.retention_hours
        if not retention.is_due(now_ms, None if last is None else int(last), hours):
            return {"messages": 0, "ids": 0}
        return self.sweep(now_ms)

    def sweep(self, now_ms: int) -> dict[str, int]:
        """Everything that is due, in pieces; also what an operator asks for."""
        store, settings = self._broker.store, self._broker.settings
        messages = ids = 0
        rounds = settings.sweep_rounds_max
        most = settings.sweep_rows_max
        for mesh in list(self._broker.directory.by_id.values()):
            before_ms = retention.oldest_kept_ms(now_ms, mesh.message_retention_days)
            removed = most
            while removed >= most and rounds > 0:
                removed = store.write(writes.sweep_messages, mesh.id, before_ms, most)
                messages += removed
                rounds -= 1
        removed = most
        while removed >= most and rounds > 0:
            removed = store.write(writes.sweep_dedupe, most)
            ids += removed
            rounds -= 1
        if rounds > 0:
            store.write(writes.note_sweep)
        metrics.swept.labels("messages").inc(messages)
        metrics.swept.labels("ids").inc(ids)
        return {"messages": messages, "ids": ids}


class OrphanCheck(Loop):
    """Looks for rows that break the promise; there must be none, ever."""

    name = "broker_orphans"

    def __init__(self, broker: Broker, registry: Registry) -> None:
        super().__init__(broker.clock, broker.log)
        self._registry = registry
        self.interval_seconds = broker.settings.retention_hours * 3600

    def run_once(self, now_ms: int) -> dict[str, int]:
        return {"orphans": len(self._registry.orphans().orphans)}
