"""Removes files that nothing has named for the grace time: first marks, then removes."""

from appliance.hub.blobs import metrics, queries, writes
from appliance.hub.blobs.service import Blobs
from appliance.hub.blobs.settings import BlobSettings
from appliance.kernel.clock import DAY_MS, Clock
from appliance.kernel.threads import in_thread
from appliance.workspace.datadir import DataDir
from appliance.workspace.named_files import Scan

SLICES_MAX = 100  # in one round, about 1 s of a thread
REST_SECONDS = 3600.0  # between scans, which read every store's texts
URGENT_REST = 10.0  # a scan for deleted messages' files rests this many times its duration


class Collector:
    """`run` is one bounded round, as a Pruner's function. A restart begins a scan again."""

    def __init__(
        self, blobs: Blobs, datadir: DataDir, settings: BlobSettings, clock: Clock
    ) -> None:
        self._blobs = blobs
        self._steady = blobs.steady
        self._datadir = datadir
        self._grace_ms = int(settings.retention_days * DAY_MS)
        self._clock = clock
        self._scan: Scan | None = None
        self._began = self._next = self._next_urgent = 0.0

    def run(self, _now_ms: int) -> int:
        """Continue the scan, or begin one if it is due; return how many files were removed."""
        self._blobs.delete_removed()
        self._blobs.measure()
        self._scan = self._scan or self._begin()
        return 0 if self._scan is None else self._continue(self._scan)

    def _begin(self) -> Scan | None:
        now = self._clock.monotonic()
        urgent = self._blobs.store.read(queries.candidates, 0) if now >= self._next_urgent else {}
        if not urgent and now < self._next:
            return None
        before_ms = self._steady.now_ms() - self._grace_ms
        wanted = self._blobs.store.read(queries.candidates, before_ms)
        self._began = now
        return in_thread(Scan, self._datadir, wanted) if wanted else None

    def _continue(self, scan: Scan) -> int:
        try:
            for _ in range(SLICES_MAX):
                if not in_thread(scan.advance):
                    in_thread(scan.finish)
                    return self._settle(scan)
        except Exception:  # a store can't be read, so nothing is removed
            self._rest()
            raise
        return 0

    def _settle(self, scan: Scan) -> int:
        removed = self._blobs.store.write(writes.settle, scan.wanted, scan.named)
        self._rest()
        metrics.collected.inc(removed)
        self._blobs.delete_removed()
        return removed

    def _rest(self) -> None:
        now, self._scan = self._clock.monotonic(), None
        self._next = now + REST_SECONDS
        self._next_urgent = now + URGENT_REST * (now - self._began)
