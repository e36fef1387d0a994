"""Corrects the times in a store when the wall clock is set.

Waits and ages are differences to the wall clock. When the clock is set, the times of waiting rows
are moved by the same amount, in one transaction with a note of it. So a clock that was ahead
blocks nothing, and setting it forward makes nothing too old.
"""

from collections.abc import Callable
from typing import Any, Protocol

from appliance.kernel import meta
from appliance.kernel.batch import Tx
from appliance.kernel.clock import Clock, iso
from appliance.kernel.clock_jump import CLOCK_KEY, ClockNote, ClockWatch, decoded, encoded
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from appliance.kernel.store import Store

NOTE_SECONDS = 60.0

Change = Callable[[Tx, int, int], int]


class Counter(Protocol):
    def inc(self) -> Any: ...


class StoredTimes:
    """One per store that has a table `meta`. `check` is cheap: it reads two clocks.

    move             (tx, by, longest wait) moves the times of waiting rows; returns how many
    end_impossible   (tx, now, longest wait) ends waits that are longer than possible
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        log: Log,
        rows: str,
        move: Change,
        end_impossible: Change,
        wait_ms_max: int,
        counter: Counter,
    ) -> None:
        """`rows`: name of the waiting rows, for the log."""
        self._store = store
        self._clock = clock
        self._log = log
        self._rows = rows
        self._move_rows = move
        self._end_impossible = end_impossible
        self._wait_ms_max = wait_ms_max
        self._counter = counter
        self._watch = ClockWatch(clock)
        self._owed_ms = 0
        self._noted = float("-inf")
        self._last: tuple[int, str | None] = (0, None)
        self._total_ms = 0

    @property
    def last(self) -> tuple[int, str | None]:
        """The last jump of the clock in milliseconds, and when it happened."""
        return self._last

    @property
    def total_ms(self) -> int:
        """The sum of all jumps, including one that is not written yet. The wall clock minus this
        never jumps."""
        return self._total_ms

    def resume(self) -> None:
        """Call at the start: applies a jump since the last note and ends impossible waits."""
        past = decoded(self._store.read(meta.value, CLOCK_KEY))
        if past is not None:
            self._last, self._total_ms = (past.jump_ms, past.jumped_at), past.total_ms
            self._owe(self._watch.jump_since_ms(past.reading))
        self._move()
        now_ms = self._clock.now_ms()
        moved = self._store.write(self._end_impossible, now_ms, self._wait_ms_max)
        if moved:
            self._log.warning(f"impossible times of {self._rows} were corrected", count=moved)

    def check(self) -> bool:
        """Call before comparing or storing times. True if stored times were moved."""
        self._owe(self._watch.jump_ms())
        try:
            return self._move()
        except Unavailable as error:
            self._log.warning(f"the times of {self._rows} could not be moved yet", code=error.code)
            return False

    def note(self) -> None:
        """Store the clock reading for the next start, at most once in NOTE_SECONDS."""
        now = self._clock.monotonic()
        if now - self._noted >= NOTE_SECONDS and not self._owed_ms:
            self._noted = now
            self._store.write(note_clock, self._note(*self._last))

    def _owe(self, jump_ms: int) -> None:
        self._owed_ms += jump_ms
        self._total_ms += jump_ms

    def _move(self) -> bool:
        jump_ms = self._owed_ms
        if not jump_ms:
            return False
        last = jump_ms, iso(self._clock.now_ms())
        self._owed_ms = 0  # a concurrent check must not move them again
        try:
            moved = self._store.write(
                _move, self._move_rows, jump_ms, self._wait_ms_max, self._note(*last)
            )
        except BaseException:
            self._owed_ms += jump_ms
            raise
        self._last = last
        self._counter.inc()
        self._log.warning("the clock was set", seconds=jump_ms / 1000, moved=moved, of=self._rows)
        return True

    def _note(self, jump_ms: int, jumped_at: str | None) -> str:
        return encoded(ClockNote(self._watch.reading(), jump_ms, jumped_at, self._total_ms))


def note_clock(tx: Tx, note: str) -> None:
    tx.execute(meta.SET, (CLOCK_KEY, note))


def _move(tx: Tx, move: Change, jump_ms: int, wait_ms_max: int, note: str) -> int:
    """Moves the times and stores the note in one transaction."""
    moved = move(tx, jump_ms, wait_ms_max)
    note_clock(tx, note)
    return moved
