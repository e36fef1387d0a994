"""Background loops: delivery, capacity and cleanup."""

from collections.abc import Callable

from appliance.kernel.errors import Unavailable
from appliance.kernel.idempotency import forget_keys
from appliance.kernel.loop import Loop
from appliance.outbox import metrics, queries, writes
from appliance.outbox.capacity import Level
from appliance.outbox.sender import HOUR_MS, Sender
from appliance.outbox.service import Outbox

DAY_MS = 24 * HOUR_MS
IDLE_SECONDS = 30.0
SWEEP_BATCHES_MAX = 10  # batches of `outbox.sweep_rows_max` pending sends in one round


class Drain(Loop):
    """Delivers due sends. An accepted send wakes it.

    The interval is longer while no send is pending, because no retry can become due.
    """

    name = "outbox_drain"
    shortest_seconds = 0.005

    def __init__(self, outbox: Outbox, sender: Sender) -> None:
        super().__init__(outbox.clock, outbox.log)
        self._sender = sender
        self._poll_seconds = self.interval_seconds = outbox.settings.poll_seconds
        self._paused_until = 0.0

    def run_once(self, now_ms: int) -> dict[str, int]:
        self.interval_seconds = self._poll_seconds
        if self.clock.monotonic() < self._paused_until:
            return {"claimed": 0}
        self._sender.check_clock()
        try:
            counts = self._sender.round(now_ms)
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

    def __init__(self, outbox: Outbox, open_routes: Callable[[], list[str]]) -> None:
        super().__init__(outbox.clock, outbox.log)
        self._outbox = outbox
        self._open_routes = open_routes
        self._level: Level = "normal"

    def run_once(self, now_ms: int) -> dict[str, int]:
        outbox = self._outbox
        outbox.jumps.check()
        stats = outbox.store.read(queries.stats)
        depth = stats.depth
        outbox.gauge.set_usage(depth["pending"] + depth["inflight"], stats.bytes_used)
        for status, count in depth.items():
            metrics.depth.labels(status).set(count)
        age_ms = 0 if stats.oldest_ms is None else max(0, now_ms - stats.oldest_ms)
        metrics.oldest.set(age_ms / 1000)
        metrics.fill.set(outbox.gauge.fill_ratio)
        metrics.open_routes.set(len(self._open_routes()))
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


class Sweep(Loop):
    """Expires sends that are too old, and drops the payloads of sends delivered long ago."""

    name = "outbox_sweep"
    interval_seconds = 30.0

    def __init__(self, outbox: Outbox) -> None:
        super().__init__(outbox.clock, outbox.log)
        self._outbox = outbox
        self._after = ""

    def run_once(self, now_ms: int) -> dict[str, int]:
        outbox, settings = self._outbox, self._outbox.settings
        outbox.jumps.check()
        outbox.jumps.note()
        limit, write = settings.sweep_rows_max, outbox.store.write
        oldest_ms = {
            mesh: now_ms - hours * HOUR_MS for mesh, hours in outbox.mesh_max_age_hours.items()
        }
        default_ms = now_ms - outbox.max_age_hours("") * HOUR_MS
        expired_total = 0
        for _ in range(SWEEP_BATCHES_MAX):
            expired, self._after = write(
                writes.expire, oldest_ms, default_ms, self._after, limit, outbox.logs
            )
            expired_total += expired
            if not self._after:
                break
        if expired_total:
            metrics.deaths.labels("too_old").inc(expired_total)
            outbox.gauge.ended(expired_total)
            self.log.warning("sends expired: older than outbox.max_age_hours", count=expired_total)
        before_ms = now_ms - int(settings.payload_days * DAY_MS)
        keys_ms = now_ms - int(settings.idempotency_hours * HOUR_MS)
        write(forget_keys, keys_ms, limit)
        return {"died": expired_total, "forgotten": write(writes.drop_payloads, before_ms, limit)}
