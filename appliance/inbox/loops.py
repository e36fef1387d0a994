"""Prunes inbox rows and returns free space to the disk."""

from appliance.inbox import metrics, writes
from appliance.inbox.service import Inbox
from appliance.kernel.clock import DAY_MS
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.store_files import vacuum_pays

PRUNED_ROWS_MAX = 2000  # rows deleted in one transaction
VACUUM_INTERVAL_DAYS = 7.0  # time between two checks whether VACUUM is worthwhile


class InboxPruner(Loop):
    """Prunes rows older than `inbox.retention_days`, a limited number per transaction."""

    name = "inbox_pruner"
    interval_seconds = 600.0
    shortest_seconds = 0.1  # between rounds that have more to delete

    def __init__(self, inbox: Inbox, log: Log) -> None:
        super().__init__(inbox.clock, log)
        self._inbox = inbox
        self._vacuum_checked_ms = inbox.clock.now_ms()

    def run_once(self, now_ms: int) -> dict[str, int]:
        store = self._inbox.store
        before_ms = now_ms - int(self._inbox.settings.retention_days * DAY_MS)
        counts = {}
        for table in ("inbox", "hook_runs"):
            removed = store.write(writes.prune, table, before_ms, PRUNED_ROWS_MAX)
            counts[table] = removed
            metrics.pruned.labels(table).inc(removed)
            if removed == PRUNED_ROWS_MAX:
                self.nudge()
        if now_ms - self._vacuum_checked_ms >= VACUUM_INTERVAL_DAYS * DAY_MS:
            self._vacuum_checked_ms = now_ms
            if store.read(vacuum_pays):
                store.vacuum()
        return counts
