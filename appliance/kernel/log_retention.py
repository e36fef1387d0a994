"""Prunes rows in a store's table `log`, whose `event_id` grows with time.

Ages don't depend on a correct wall clock. Marks in the table `meta` record which event was the
newest at which steady clock time; this loop stores the clock's notes.
"""

from appliance.kernel import meta
from appliance.kernel.clock import DAY_MS, Clock
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from appliance.kernel.log_retention_writes import KEY, LogMark, LogNote, delete, write_note
from appliance.kernel.loop import Loop
from appliance.kernel.metrics import counter
from appliance.kernel.steady_clock import SteadyClock
from appliance.kernel.store import Store

KEEP_MS = 7 * DAY_MS  # long enough for an export that was down over a weekend
MARKS = 100  # in the retention time, which is exceeded by at most a hundredth
ROUNDS = 50  # transactions in one round
IDLE_SECONDS, BUSY_SECONDS = 60.0, 0.5

_jumps = counter("store_clock_jumps_total", "Times that the wall clock was set", ("store",))

_BOUNDS = "SELECT coalesce(min(event_id), 0), coalesce(max(event_id), 0) FROM log"


class LogPruner(Loop):
    """A pruner for one store with a log. An unreadable note is replaced, and all rows' ages
    begin again."""

    def __init__(self, store: Store, steady: SteadyClock, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self.name = f"{store.name}_log_pruner"
        self.interval_seconds = IDLE_SECONDS
        self._store = store
        self._steady = steady
        self._note: LogNote | None = None
        _jumps.labels(store.name)  # so that the first jump is an increase

    def run_once(self, now_ms: int) -> dict[str, int]:
        try:
            if self._steady.note():
                _jumps.labels(self._store.name).inc()
            deleted = self._prune(self._steady.now_ms())
        except Unavailable:  # the disk is full or the file is damaged: a later round deletes
            deleted = 0
        return {"deleted": deleted}

    def _prune(self, age_ms: int) -> int:
        lowest, newest = self._store.read(_bounds)
        past = self._note or meta.decode(self._store.read(meta.value, KEY), LogNote) or LogNote()
        note = LogNote(advance(past.marks, age_ms, newest, KEEP_MS))
        if note != self._note:
            self._store.write(write_note, note)
            self._note = note
        until = expired(note.marks, age_ms, KEEP_MS)
        deleted, rounds = 0, 0
        while lowest and lowest <= until and rounds < ROUNDS:
            deleted += self._store.write(delete, until)
            rounds += 1
            lowest, _ = self._store.read(_bounds)
        self.interval_seconds = BUSY_SECONDS if lowest and lowest <= until else IDLE_SECONDS
        return deleted


def advance(
    marks: tuple[LogMark, ...], age_ms: int, newest: int, keep_ms: int
) -> tuple[LogMark, ...]:
    """Return the marks at `age_ms`, with one for `newest` if due. Marks older than `keep_ms` are
    removed, except the newest."""
    if newest and (not marks or _is_due(marks[-1], age_ms, newest, keep_ms)):
        marks = (*marks, LogMark(age_ms, newest))
    old = sum(1 for mark in marks if mark.age_ms <= age_ms - keep_ms)
    return marks[max(0, old - 1) :][-2 * MARKS :]


def _is_due(last: LogMark, age_ms: int, newest: int, keep_ms: int) -> bool:
    return newest > last.event_id and age_ms - last.age_ms >= keep_ms // MARKS


def expired(marks: tuple[LogMark, ...], age_ms: int, keep_ms: int) -> int:
    """Return the number up to which rows are older than `keep_ms`; 0: none."""
    return max((mark.event_id for mark in marks if mark.age_ms <= age_ms - keep_ms), default=0)


def _bounds(reader: meta.Executor) -> tuple[int, int]:
    row: tuple[int, int] = reader.execute(_BOUNDS).fetchone()
    return row
