"""Handles deadlines: reminds, reassigns, or notes that an entry is overdue."""

from appliance.hub.entries import queries, writes
from appliance.hub.entries.service import Entries
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop

INTERVAL_SECONDS = 5.0  # a deadline that was just set may be this near
RETRY_SECONDS = 1.0


class EntryDeadlines(Loop):
    """Looks for deadlines that have passed, by the steady clock."""

    name = "entry_deadlines"
    interval_seconds = INTERVAL_SECONDS

    def __init__(self, entries: Entries, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._entries = entries

    def run_once(self, now_ms: int) -> dict[str, int]:
        entries, handled = self._entries, 0
        self.interval_seconds = INTERVAL_SECONDS
        try:
            entries.steady.note()
            due = entries.store.read(queries.next_due)
            if due is not None and due <= entries.steady.now_ms():
                handled = entries.handle_due()
                due = entries.store.read(queries.next_due)
        except Unavailable:  # the disk is full: the deadlines stay due
            self.interval_seconds = RETRY_SECONDS
            return {"handled": 0, "refused": 1}
        if handled == writes.DUE_MAX:
            self.nudge()
        if due is not None:
            left = max(0, due - entries.steady.now_ms()) / 1000
            self.interval_seconds = min(max(left, 0.05), INTERVAL_SECONDS)
        return {"handled": handled}
