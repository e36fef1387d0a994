"""The courier's background loops: the tick, and writing the journal."""

from appliance.courier.outcome_log import SAMPLE_MS
from appliance.courier.service import Courier
from appliance.courier.timers import SLEEP_MS_MAX
from appliance.kernel.errors import Unavailable
from appliance.kernel.loop import Loop

TICK_SECONDS = 0.02  # how late leases end and delayed envelopes become ready, in seconds
TICK_ITEMS_MAX = 5_000  # expired leases and due delays handled before other work gets a turn
JOURNAL_SECONDS = 0.01  # how late acks are written to the durable streams' journal, in seconds


class Tick(Loop):
    """Everything that depends on time: leases, delays, times to live and pauses end, rates are
    sampled, unused streams are forgotten.

    The loop sleeps until the next of these is due, and is woken when an earlier one comes up.
    """

    name = "courier_tick"

    def __init__(self, courier: Courier) -> None:
        super().__init__(courier.clock, courier.log)
        self._courier = courier
        self.shortest_seconds = TICK_SECONDS
        self.interval_seconds = 0.0
        self._forgotten_ms = 0.0

    def run_once(self, now_ms: int) -> dict[str, int]:
        courier = self._courier
        now = courier.now()
        counts = courier.queue.tick(now, TICK_ITEMS_MAX)
        courier.queue.dispatch_deferred(now)
        if now - self._forgotten_ms >= 1000:
            self._forgotten_ms = now
            courier.pipeline.forget_unused()
        self._sleep(now)
        return counts

    def _sleep(self, now: float) -> None:
        courier = self._courier
        until = min(courier.queue.next_tick_ms(now), now + SLEEP_MS_MAX)
        courier.queue.timers.sleep_until(until, self.nudge)
        self.interval_seconds = max(0.0, (until - now) / 1000)


class JournalWriter(Loop):
    """Writes durable streams' changes to the journal, each round in one transaction, and samples
    of memory streams' outcomes to the log."""

    name = "courier_journal"

    def __init__(self, courier: Courier, *, durable: bool = True) -> None:
        """`durable`: there can be durable streams."""
        super().__init__(courier.clock, courier.log)
        self._courier = courier
        self.interval_seconds = JOURNAL_SECONDS if durable else SAMPLE_MS / 1000
        self._retry_at = 0.0

    def run_once(self, now_ms: int) -> dict[str, int]:
        if self.clock.monotonic() < self._retry_at:
            return {"written": 0}
        try:
            return {"written": self._courier.pipeline.flush()}
        except Unavailable as error:
            # The disk is full or the file is busy: the changes stay, and are written later.
            self._retry_at = self.clock.monotonic() + (error.retry_after or 1.0)
            return {"written": 0, "refused": 1}
