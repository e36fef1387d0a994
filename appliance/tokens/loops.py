"""Maintenance of tokens: expiry, last use, and purge of ended tokens."""

from contextlib import suppress

from appliance.kernel.auth import TokenBook
from appliance.kernel.clock import DAY_MS, Clock
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.store import Store
from appliance.tokens import writes

FORGET_MS = 90 * DAY_MS  # revoked and expired tokens are listed for so long
LAST_USED_SECONDS = 60.0  # between two writes of the last use of tokens
PURGE_INTERVAL_SECONDS = 3600.0


class TokenMaintenance(Loop):
    """Ends the sockets and streams of expired tokens; requests check expiry themselves."""

    name = "token_keeper"
    interval_seconds = 1.0
    runs_read_only = True  # tokens expire, but nothing is recorded

    def __init__(self, store: Store, book: TokenBook, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._store = store
        self._book = book
        self._recorded_at = clock.monotonic()
        self._purged_at = float("-inf")

    def run_once(self, now_ms: int) -> dict[str, int]:
        counts = {"ended": self._book.end(now_ms), "noted": 0, "forgotten": 0}
        now = self.clock.monotonic()
        if now - self._recorded_at >= LAST_USED_SECONDS:
            self._recorded_at = now
            counts["noted"] = self.record_use(now_ms)
        if now - self._purged_at >= PURGE_INTERVAL_SECONDS:
            self._purged_at = now
            before_ms = now_ms - FORGET_MS
            with suppress(Unavailable):  # a full disk: try again in an hour
                counts["forgotten"] = self._store.write(writes.purge, before_ms)
        return counts

    def record_use(self, now_ms: int) -> int:
        """Store when tokens were last used; after a failure the next round tries again."""
        used = self._book.take_used()
        if not used:
            return 0
        try:
            self._store.write(writes.record_use, sorted(used), now_ms)
        except Unavailable:
            self._book.used |= used
            return 0
        return len(used)
