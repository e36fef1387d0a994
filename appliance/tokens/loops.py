"""Maintains tokens: expiry, last use, and pruning."""

from appliance.kernel.auth import TokenBook
from appliance.kernel.clock import DAY_MS, Clock
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.store import Store
from appliance.tokens import writes

ENDED_KEPT_MS = 90 * DAY_MS  # revoked and expired tokens are listed for so long
WRITE_SECONDS = 60.0  # between two records of tokens' last use, which also prune ended tokens


class TokenMaintenance(Loop):
    """Ends sockets and streams when their tokens expire; requests check expiry themselves."""

    name = "token_keeper"
    interval_seconds = 1.0
    runs_read_only = True  # tokens expire, but nothing is recorded

    def __init__(self, store: Store, book: TokenBook, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._store = store
        self._book = book
        self._written_at = clock.monotonic()

    def run_once(self, now_ms: int) -> dict[str, int]:
        counts = {"ended": self._book.end(now_ms), "noted": 0, "pruned": 0}
        now = self.clock.monotonic()
        if now - self._written_at >= WRITE_SECONDS:
            self._written_at = now
            used = self._book.take_used()
            try:
                self._store.write(writes.record_use, sorted(used), now_ms)
                counts["pruned"] = self._store.write(writes.prune, now_ms - ENDED_KEPT_MS)
                counts["noted"] = len(used)
            except Unavailable:  # a full disk: the next minute tries again
                self._book.used |= used
        return counts
