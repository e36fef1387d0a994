"""Background work on tokens: ends what has expired, notes what was used, forgets what is over."""

from contextlib import suppress

from appliance.kernel.auth import TokenBook
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.store import Store
from appliance.tokens import writes
from appliance.tokens.settings import AuthSettings

FORGET_EVERY_SECONDS = 3600.0
DAY_MS = 86_400_000


class TokenKeeper(Loop):
    """Requests are judged at their own instant; this is for sockets and streams that stay."""

    name = "token_keeper"
    interval_seconds = 1.0

    def __init__(
        self, store: Store, book: TokenBook, settings: AuthSettings, clock: Clock, log: Log
    ) -> None:
        super().__init__(clock, log)
        self._store = store
        self._book = book
        self._settings = settings
        self._noted = clock.monotonic()
        self._forgot = float("-inf")

    def run_once(self, now_ms: int) -> dict[str, int]:
        counts = {"ended": self._book.end(now_ms), "noted": 0, "forgotten": 0}
        now = self.clock.monotonic()
        if now - self._noted >= self._settings.last_used_seconds:
            self._noted = now
            counts["noted"] = self.note_use(now_ms)
        if now - self._forgot >= FORGET_EVERY_SECONDS:
            self._forgot = now
            before_ms = now_ms - int(self._settings.forget_days * DAY_MS)
            with suppress(Unavailable):  # a full disk: the next hour will do
                counts["forgotten"] = self._store.write(writes.forget, before_ms)
        return counts

    def note_use(self, now_ms: int) -> int:
        """Write down whose tokens were used; kept for the next round if that can't be done."""
        used = self._book.take_used()
        if not used:
            return 0
        try:
            self._store.write(writes.note_use, sorted(used), now_ms)
        except Unavailable:
            self._book.used |= used
            return 0
        return len(used)
