"""The inbox's background loop: deletes expired rows and returns free space to the disk."""

from appliance.inbox import metrics, writes
from appliance.inbox.settings import InboxSettings
from appliance.kernel.clock import DAY_MS, Clock
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.reader import Reader
from appliance.kernel.store import Store

ROUNDS_MAX = 50
FREE_SHARE_MIN = 0.25
VACUUM_BYTES_MAX = 512 * 1024 * 1024  # VACUUM of a larger file delays its writes for too long
PRUNED_ROWS_MAX = 2000  # rows deleted in one transaction
VACUUM_INTERVAL_DAYS = 7.0  # time between two checks whether VACUUM is worthwhile


class Sweeper(Loop):
    """Deletes rows older than `inbox.retention_days`, a limited number per transaction."""

    name = "inbox_sweeper"
    interval_seconds = 600.0

    def __init__(self, store: Store, settings: InboxSettings, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._store = store
        self._settings = settings
        self._vacuum_checked_ms = clock.now_ms()

    def run_once(self, now_ms: int) -> dict[str, int]:
        before_ms = now_ms - int(self._settings.retention_days * DAY_MS)
        counts = {}
        for table in ("inbox", "hook_runs"):
            counts[table] = self._sweep(table, before_ms)
            metrics.swept.labels(table).inc(counts[table])
        counts["vacuums"] = 0
        if now_ms - self._vacuum_checked_ms >= VACUUM_INTERVAL_DAYS * DAY_MS:
            self._vacuum_checked_ms = now_ms
            counts["vacuums"] = int(self._vacuum())
        return counts

    def _sweep(self, table: str, before_ms: int) -> int:
        limit, total = PRUNED_ROWS_MAX, 0
        for _ in range(ROUNDS_MAX):
            removed = self._store.write(writes.sweep, table, before_ms, limit)
            total += removed
            if removed < limit:
                break
        return total

    def _vacuum(self) -> bool:
        """VACUUM if a quarter of the file is free and the file is small enough."""
        pages, free, size = self._store.read(_pages)
        if not free or free / pages < FREE_SHARE_MIN:
            return False
        if pages * size > VACUUM_BYTES_MAX:
            return False
        self._store.vacuum()
        return True


def _pages(reader: Reader) -> tuple[int, int, int]:
    pragmas = ("page_count", "freelist_count", "page_size")
    pages, free, size = (
        int(reader.execute(f"PRAGMA {pragma}").fetchone()[0]) for pragma in pragmas
    )
    return pages, free, size
