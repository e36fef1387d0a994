"""Settles asks when their deadline has passed."""

from appliance.ask import queries, writes
from appliance.ask.service import Asks
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop

IDLE_SECONDS = 30.0
RETRY_SECONDS = 1.0


class Deadlines(Loop):
    """Sleeps until the next deadline; a new one wakes it. Deadlines are times of the steady clock,
    so they don't move when the wall clock is set."""

    name = "ask_deadlines"
    shortest_seconds = 0.05

    def __init__(self, asks: Asks, clock: Clock, log: Log) -> None:
        super().__init__(clock, log, work=asks.deadlines)
        self._asks = asks
        self.nudge()  # deadlines may have passed while the appliance was stopped

    def run_once(self, now_ms: int) -> dict[str, int]:
        asks, settled = self._asks, 0
        self.interval_seconds = RETRY_SECONDS
        try:
            asks.steady.note()
            due = asks.store.read(queries.next_due)
            if due is not None and due <= asks.steady.now_ms():
                settled = asks.settle_due()
                due = asks.store.read(queries.next_due)
        except Unavailable:  # the disk is full: the deadlines stay due
            return {"settled": 0, "refused": 1}
        if settled == writes.SETTLED_MAX:
            self.nudge()
        if due is None:
            self.interval_seconds = IDLE_SECONDS
        else:
            left = max(0, due - asks.steady.now_ms()) / 1000
            self.interval_seconds = min(max(left, self.shortest_seconds), IDLE_SECONDS)
        return {"settled": settled}
