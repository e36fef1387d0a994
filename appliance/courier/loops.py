"""The courier's background work: the tick, and the journal's writer."""

from appliance.courier.alarm import REST_MS_MAX
from appliance.courier.operator import Operator
from appliance.courier.service import Courier
from appliance.courier.view import INFLIGHT
from appliance.kernel.errors import Unavailable
from appliance.kernel.loop import Loop

INFLIGHT_MS = 100.0  # between two looks at all leases, while somebody watches them


class Tick(Loop):
    """The only thing that happens because time passed: leases end, delays and lives as well,
    pauses and redrives go on, rates are sampled, unused streams forgotten.

    It rests until the next of these is due, and is woken when something earlier comes up.
    """

    name = "courier_tick"

    def __init__(self, courier: Courier, operator: Operator) -> None:
        super().__init__(courier.clock, courier.log)
        self._courier = courier
        self._operator = operator
        self.shortest_seconds = courier.settings.tick_seconds
        self.interval_seconds = 0.0
        self._forgot_ms = self._shown_ms = 0.0

    def run_once(self, now_ms: int) -> dict[str, int]:
        courier = self._courier
        now = courier.now()
        counts = courier.queue.tick(now, courier.settings.tick_items_max)
        courier.queue.release_holds(now)
        counts["redriven"] = self._operator.tick(now)
        if courier.views[INFLIGHT].watchers and now - self._shown_ms >= INFLIGHT_MS:
            self._shown_ms = now
            self._operator.refresh_inflight()
        if now - self._forgot_ms >= 1000:
            self._forgot_ms = now
            courier.inserts.forget()
        if counts["lease_expired"] and courier.settings.event_log:
            ids = courier.queue.timed_out[:100]
            self.log.info("courier", event="timeout", count=counts["lease_expired"], ids=ids)
        self._rest(now)
        return counts

    def _rest(self, now: float) -> None:
        courier = self._courier
        until = min(courier.queue.next_tick_ms(now), now + REST_MS_MAX)
        if self._operator.is_redriving:
            until = now
        elif courier.views[INFLIGHT].watchers:
            until = min(until, now + INFLIGHT_MS)
        courier.queue.alarm.rest(until, self.nudge)
        self.interval_seconds = max(0.0, (until - now) / 1000)


class JournalWriter(Loop):
    """Durable streams: what happened since the last round is written in one transaction."""

    name = "courier_journal"

    def __init__(self, courier: Courier) -> None:
        super().__init__(courier.clock, courier.log)
        self._courier = courier
        self.interval_seconds = courier.settings.journal_seconds
        self._quiet_until = 0.0

    def run_once(self, now_ms: int) -> dict[str, int]:
        if self.clock.monotonic() < self._quiet_until:
            return {"written": 0}
        try:
            return {"written": self._courier.inserts.flush()}
        except Unavailable as error:
            # The disk is full or the file is busy: what is to be written stays, and waits.
            self._quiet_until = self.clock.monotonic() + (error.retry_after or 1.0)
            return {"written": 0, "refused": 1}
