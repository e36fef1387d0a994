"""Keeps ages and waits of sends right when the clock is set.

A send's age and the wait for its next attempt are differences to the wall clock. When that clock
is set, the times of all sends that are not delivered yet move by as much, in one transaction with
the note of what was done. So a clock that was ahead blocks no send, and one that is set forward
makes none too old.
"""

from appliance.kernel.clock import Clock, iso
from appliance.kernel.clock_jump import ClockNote, ClockWatch, decoded, encoded
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from appliance.kernel.store import Store
from appliance.outbox import metrics, queries, writes
from appliance.outbox.settings import OutboxSettings

NOTE_SECONDS = 60.0


class ClockJumps:
    """One per outbox. `check` is cheap: two readings of clocks."""

    def __init__(
        self,
        store: Store,
        settings: OutboxSettings,
        clock: Clock,
        log: Log,
        boot_id: str | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._log = log
        self._watch = ClockWatch(clock, boot_id)
        self._owed_ms = 0
        self._noted = float("-inf")
        self._last: tuple[int, str | None] = (0, None)

    @property
    def last(self) -> tuple[int, str | None]:
        """By how many milliseconds the clock was set last, and when (as it shows now)."""
        return self._last

    def resume(self) -> None:
        """At a start: what happened to the clock since the last note, and times that can't be."""
        past = decoded(self._store.read(queries.clock_note))
        if past is not None:
            self._last = past.jump_ms, past.jumped_at
            self._owed_ms = self._watch.jump_since_ms(past.reading)
        self._move()
        moved = self._store.write(
            writes.end_impossible_waits,
            self._clock.now_ms(),
            self._settings.retry_after_max_ms + self._settings.backoff_max_ms,
        )
        if moved:
            self._log.warning("sends with times in the future are due now", count=moved)

    def check(self) -> None:
        """Before ages or waits are looked at, and before a send is accepted."""
        self._owed_ms += self._watch.jump_ms()
        if self._owed_ms:
            try:
                self._move()
            except Unavailable as error:
                self._log.warning("times of sends could not be moved yet", code=error.code)

    def note(self) -> None:
        """Keep the reading of now, for the next start. At most once in NOTE_SECONDS."""
        now = self._clock.monotonic()
        if now - self._noted >= NOTE_SECONDS and not self._owed_ms:
            self._noted = now
            self._store.write(writes.note_clock, self._note())

    def _move(self) -> None:
        jump_ms = self._owed_ms
        if not jump_ms:
            return
        last, self._last = self._last, (jump_ms, iso(self._clock.now_ms()))
        try:
            moved = self._store.write(writes.move_times, jump_ms, self._note())
        except BaseException:
            self._last = last
            raise
        self._owed_ms -= jump_ms
        metrics.clock_jumps.inc()
        self._log.warning("the clock was set", seconds=jump_ms / 1000, sends_moved=moved)

    def _note(self) -> str:
        jump_ms, jumped_at = self._last
        return encoded(ClockNote(self._watch.reading(), jump_ms, jumped_at))
