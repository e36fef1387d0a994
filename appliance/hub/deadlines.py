"""A loop for deadlines in the hub's store: sleeps until the next one, and handles those that have
passed."""

from abc import abstractmethod

from appliance.hub.service import Hub
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.wakeup import Wakeup

RETRY_SECONDS = 1.0


class DeadlineLoop(Loop):
    """Deadlines are steady clock times, so setting the wall clock moves none.

    counted      what a round's number is called
    handled_max  deadlines that `handle` takes in one transaction
    """

    shortest_seconds = 0.05
    idle_seconds = 30.0
    counted = "handled"
    handled_max = 100

    def __init__(self, hub: Hub, clock: Clock, log: Log, work: Wakeup | None = None) -> None:
        super().__init__(clock, log, work=work)
        self._hub = hub
        self.nudge()  # deadlines may have passed while the appliance was stopped

    @abstractmethod
    def next_due(self) -> int | None:
        """Return the next deadline by the steady clock; None without one."""

    @abstractmethod
    def handle(self) -> int:
        """Handle passed deadlines, and return their number."""

    def run_once(self, now_ms: int) -> dict[str, int]:
        steady, handled = self._hub.steady, 0
        self.interval_seconds = RETRY_SECONDS
        try:
            steady.note()
            due = self.next_due()
            if due is not None and due <= steady.now_ms():
                handled = self.handle()
                due = self.next_due()
        except Unavailable:  # the disk is full: the deadlines stay due
            return {self.counted: 0, "refused": 1}
        if handled == self.handled_max:
            self.nudge()
        self.interval_seconds = self.idle_seconds
        if due is not None:
            left = max(0, due - steady.now_ms()) / 1000
            self.interval_seconds = min(max(left, self.shortest_seconds), self.idle_seconds)
        return {self.counted: handled}
