"""Background loops: delivery, capacity and cleanup."""

from appliance.kernel.clock import DAY_MS, HOUR_MS
from appliance.kernel.errors import Unavailable
from appliance.kernel.idempotency import prune_keys
from appliance.kernel.loop import Loop
from appliance.outbox import metrics, queries, writes
from appliance.outbox.capacity import Level
from appliance.outbox.sender import Sender
from appliance.outbox.service import BROKER, STEP_ROWS_MAX, Outbox

IDEMPOTENCY_HOURS = 24.0  # hours to remember keys for redrive, drop and prune
IDLE_SECONDS = 30.0
POLL_SECONDS = 0.5  # between checks for due retries
COMPARE_ROWS = 1000  # the most that a broker compares in one request
EXPIRE_BATCHES_MAX = 10  # batches with STEP_ROWS_MAX pending sends in one round


class Drain(Loop):
    """Delivers due sends. An accepted send wakes it.

    The interval is longer while no send is pending, because no retry can become due.
    """

    name = "outbox_drain"
    shortest_seconds = 0.005

    def __init__(self, outbox: Outbox, sender: Sender) -> None:
        super().__init__(outbox.clock, outbox.log, work=outbox.delivery_work)
        self._sender = sender
        self.interval_seconds = POLL_SECONDS
        self._paused_until = 0.0

    def run_once(self, now_ms: int) -> dict[str, int]:
        self.interval_seconds = POLL_SECONDS
        if self.clock.monotonic() < self._paused_until:
            return {"claimed": 0}
        try:
            counts = self._sender.round()
        except Unavailable as error:
            # The disk is full or the file is busy: due sends stay due.
            self._paused_until = self.clock.monotonic() + (error.retry_after or 1.0)
            return {"claimed": 0, "refused": 1}
        if not (self._sender.has_pending or self._sender.in_flight):
            self.interval_seconds = IDLE_SECONDS
        return counts


class Watch(Loop):
    """Measures depth, age and size, and logs when the fill level changes."""

    name = "outbox_watch"
    interval_seconds = 5.0

    def __init__(self, outbox: Outbox) -> None:
        super().__init__(outbox.clock, outbox.log)
        self._outbox = outbox
        self._level: Level = "normal"

    def run_once(self, now_ms: int) -> dict[str, int]:
        outbox = self._outbox
        stats = outbox.store.read(queries.stats)
        depth = stats.depth
        outbox.gauge.set_usage(depth["pending"] + depth["inflight"], stats.bytes_used)
        for status, count in depth.items():
            metrics.depth.labels(status).set(count)
        age_ms = 0 if stats.oldest_ms is None else outbox.steady.now_ms() - stats.oldest_ms
        metrics.oldest.set(max(0, age_ms) / 1000)
        metrics.fill.set(outbox.gauge.fill_ratio)
        metrics.open_routes.set(len(outbox.routes.open_names()))
        self._log_change(outbox.gauge.level)
        return depth

    def _log_change(self, level: Level) -> None:
        previous, self._level = self._level, level
        if level == previous:
            return
        facts = {"level": level, "fill": round(self._outbox.gauge.fill_ratio, 3)}
        if level == "normal":
            self.log.info("outbox_pressure_over", **facts)
        else:
            self.log.warning("outbox_pressure_high", **facts)


class BrokerComparison(Loop):
    """Finds, after a mesh's broker was restored, the sends that it had accepted and lacks now.

    Only sends with a payload that are younger than the maximum age, because the broker may have
    forgotten older ids.
    """

    name = "outbox_broker_comparison"
    interval_seconds = 60.0

    def __init__(self, outbox: Outbox) -> None:
        super().__init__(outbox.clock, outbox.log, work=outbox.comparison_work)
        self._outbox = outbox
        self._compared: dict[str, str] = {}

    def run_once(self, now_ms: int) -> dict[str, int]:
        lost = 0
        for mesh, epoch in list(self._outbox.broker_epochs.items()):
            if mesh not in self._compared:
                self._compared[mesh] = self._outbox.store.read(queries.broker_epoch, mesh) or ""
            if self._compared[mesh] != epoch:
                lost += self._compare(mesh, epoch, now_ms)
        return {"lost": lost}

    def _compare(self, mesh: str, epoch: str, now_ms: int) -> int:
        """Return how many are lost. An interrupted comparison begins again."""
        outbox, lost = self._outbox, 0
        cursor = (now_ms - outbox.max_age_hours(mesh) * HOUR_MS, 0)
        while rows := outbox.store.read(queries.list_delivered, mesh, cursor, COMPARE_ROWS):
            unknown = outbox.targets[BROKER].unknown(mesh, [row[3] for row in rows])
            if unknown is None:
                return lost
            named = set(unknown)
            ids = [row[2] for row in rows if row[3] in named]
            if ids:
                lost += outbox.store.write(writes.mark_lost, ids)
                metrics.deaths.labels("lost").inc(len(ids))
                self.log.warning(
                    "the mesh's broker was restored and no longer has sends that it had accepted",
                    mesh=mesh, count=len(ids),
                )  # fmt: skip
            cursor = rows[-1][:2]
        outbox.store.write(writes.note_epoch, mesh, epoch)
        self._compared[mesh] = epoch
        return lost


class OutboxPruner(Loop):
    """Expires sends that are too old, and prunes payloads delivered long ago."""

    name = "outbox_pruner"
    interval_seconds = 30.0

    def __init__(self, outbox: Outbox) -> None:
        super().__init__(outbox.clock, outbox.log)
        self._outbox = outbox
        self._after = ""

    def run_once(self, now_ms: int) -> dict[str, int]:
        outbox, settings = self._outbox, self._outbox.settings
        limit, write = STEP_ROWS_MAX, outbox.store.write
        steady_ms = outbox.steady.now_ms()
        oldest_ms = {
            mesh: steady_ms - hours * HOUR_MS for mesh, hours in outbox.mesh_max_age_hours.items()
        }
        default_ms = steady_ms - outbox.max_age_hours("") * HOUR_MS
        expired_total = 0
        for _ in range(EXPIRE_BATCHES_MAX):
            expired, self._after = write(writes.expire, oldest_ms, default_ms, self._after, limit)
            expired_total += expired
            if not self._after:
                break
        if expired_total:
            metrics.deaths.labels("too_old").inc(expired_total)
            outbox.gauge.remove(expired_total)
            self.log.warning("sends expired: older than outbox.max_age_hours", count=expired_total)
        before_ms = now_ms - int(settings.payload_retention_days * DAY_MS)
        keys_ms = now_ms - int(IDEMPOTENCY_HOURS * HOUR_MS)
        write(prune_keys, keys_ms, limit)
        return {"died": expired_total, "pruned": write(writes.prune_payloads, before_ms, limit)}
