"""The outbox's background work: sending, watching how full it is, giving up and forgetting."""

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
LOOKS_MAX = 10  # pieces of `outbox.sweep_rows_max` pending sends in one round


class Drain(Loop):
    """Delivers what is due; an accepted send has it go round at once.

    While no send is pending there is no retry to wait for, so it rests longer.
    """

    name = "outbox_drain"
    shortest_seconds = 0.005

    def __init__(self, outbox: Outbox, sender: Sender) -> None:
        super().__init__(outbox.clock, outbox.log)
        self._sender = sender
        self._poll_seconds = self.interval_seconds = outbox.settings.poll_seconds
        self._quiet_until = 0.0

    def run_once(self, now_ms: int) -> dict[str, int]:
        self.interval_seconds = self._poll_seconds
        if self.clock.monotonic() < self._quiet_until:
            return {"claimed": 0}
        self._sender.check_clock()
        try:
            counts = self._sender.round(now_ms)
        except Unavailable as error:
            # The disk is full or the file is busy: what is due stays so.
            self._quiet_until = self.clock.monotonic() + (error.retry_after or 1.0)
            return {"claimed": 0, "refused": 1}
        if not (self._sender.has_pending or self._sender.held):
            self.interval_seconds = IDLE_SECONDS
        return counts


class Watch(Loop):
    """Looks how much there is, how old and how large, and tells when it becomes too much."""

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
        standing = outbox.store.read(queries.standing)
        depth = standing.depth
        outbox.gauge.looked(depth["pending"] + depth["inflight"], standing.bytes_used)
        for status, count in depth.items():
            metrics.depth.labels(status).set(count)
        age_ms = 0 if standing.oldest_ms is None else max(0, now_ms - standing.oldest_ms)
        metrics.oldest.set(age_ms / 1000)
        metrics.fill.set(outbox.gauge.filled)
        metrics.open_routes.set(len(self._open_routes()))
        self._tell(outbox.gauge.level)
        return depth

    def _tell(self, level: Level) -> None:
        before, self._level = self._level, level
        if level == before:
            return
        facts = {"level": level, "fill": round(self._outbox.gauge.filled, 3)}
        if level == "normal":
            self.log.info("outbox_pressure_over", **facts)
            self._outbox.tell("outbox_pressure_over", facts)
        else:
            self.log.warning("outbox_pressure_high", **facts)
            self._outbox.tell("outbox_pressure_high", facts)


class Sweep(Loop):
    """Gives up sends that became too old, and drops payloads of those delivered long ago."""

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
        most, write = settings.sweep_rows_max, outbox.store.write
        oldest_ms = {mesh: now_ms - hours * HOUR_MS for mesh, hours in outbox.adopted.items()}
        default_ms = now_ms - outbox.max_age_hours("") * HOUR_MS
        died = 0
        for _ in range(LOOKS_MAX):
            more, self._after = write(writes.let_die, oldest_ms, default_ms, self._after, most)
            died += more
            if not self._after:
                break
        if died:
            metrics.deaths.labels("too_old").inc(died)
            outbox.gauge.ended(died)
            self.log.warning("sends became too old and were given up", count=died)
        before_ms = now_ms - int(settings.payload_days * DAY_MS)
        keys_ms = now_ms - int(settings.idempotency_hours * HOUR_MS)
        write(forget_keys, keys_ms, most)
        return {"died": died, "forgotten": write(writes.forget_payloads, before_ms, most)}
