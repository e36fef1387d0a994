"""A clock for stored waits and ages, which goes on steadily when the wall clock is set.

A column with a due time, or with an age's beginning, has this clock's times. So no row is rewritten
when the wall clock is set, waits keep their length, and nothing gets too old. Within a boot the
clock follows the uptime. A note in the store's table `meta` continues it in the next process; after
a reboot, the time that the machine was off is added, by the wall clock.
"""

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from appliance.kernel import meta
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log

TOLERANCE_MS = 2000
"""Smaller wall clock steps are ordinary time synchronization and are not reported."""

NOTE_SECONDS = 3600.0
"""Between two notes. If the wall clock is behind after a reboot, waits are at most this longer."""

CLOCK_KEY = "clock"
"""The note's key in a store's table `meta`."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class ClockReading(msgspec.Struct, frozen=True):
    """Wall time and uptime at one moment. `uptime_ms` counts since the boot `boot_id`."""

    wall_ms: int
    uptime_ms: int
    boot_id: str


class ClockNote(msgspec.Struct, frozen=True):
    """A reading, at which the wall clock was `total_ms` ahead of the steady clock; and by how
    much the wall clock was set last, noticed at `jumped_at`."""

    reading: ClockReading
    jump_ms: int = 0
    jumped_at: str | None = None
    total_ms: int = 0


class SteadyClock:
    """A store's steady clock, in the process that serves the store. `store` is a `Store`, whose
    module needs this one."""

    def __init__(self, store: Any, clock: Clock, log: Log) -> None:
        self._store = store
        self._clock = clock
        self._log = log
        self._continue(ClockNote(read_clocks(clock)))
        self._noted = float("-inf")

    def open(self) -> None:
        """Continue from the store's note. Call at the start, before other reads and writes."""
        note = self._store.read(read_note)
        if note is not None:
            self._continue(note)
        with suppress(Unavailable):  # the disk is full: stored by a later call to `note`
            self.note()

    def _continue(self, note: ClockNote) -> None:
        self._note = note
        reading = read_clocks(self._clock)
        self._offset_ms = steady_at(note, reading) - reading.uptime_ms

    def now_ms(self) -> int:
        return int(self._clock.uptime() * 1000) + self._offset_ms

    def ahead_ms(self) -> int:
        """Return how far the wall clock is ahead."""
        return self._clock.now_ms() - self.now_ms()

    def wall_iso(self, ms: int | None) -> str | None:
        """Return a stored time as the wall clock shows it."""
        return None if ms is None else iso(ms + self.ahead_ms())

    @property
    def last_jump(self) -> tuple[int, str | None]:
        """Return by how many milliseconds the wall clock was set last, and when that was
        noticed."""
        return self._note.jump_ms, self._note.jumped_at

    def note(self) -> bool:
        """Store a reading for the next process: at once if the clock was set, otherwise at most
        once in NOTE_SECONDS. Whether it was set. Raises Unavailable."""
        now, past = self._clock.monotonic(), self._note
        ahead_ms = self.ahead_ms()
        jump_ms = beyond_tolerance(ahead_ms - past.total_ms)
        if not jump_ms and now - self._noted < NOTE_SECONDS:
            return False
        jump = past.jump_ms, past.jumped_at
        if jump_ms:
            jump = jump_ms, iso(self._clock.now_ms())
            self._log.warning("the clock was set", store=self._store.name, seconds=jump_ms / 1000)
        self._noted = now
        self._note = ClockNote(read_clocks(self._clock), *jump, ahead_ms)
        self._store.write(write_note, self._note)
        return jump_ms != 0


def steady_ms(connection: meta.Executor, clock: Clock) -> int:
    """Return the store's steady clock, read through a connection or a transaction."""
    note, now = read_note(connection), read_clocks(clock)
    return now.wall_ms if note is None else steady_at(note, now)


def steady_at(note: ClockNote, now: ClockReading) -> int:
    past = note.reading
    if past.boot_id and past.boot_id == now.boot_id:
        passed_ms = now.uptime_ms - past.uptime_ms
    else:  # how long the machine was off; a wall clock that went back was set
        passed_ms = max(0, now.wall_ms - past.wall_ms)
    return past.wall_ms - note.total_ms + passed_ms


def jump_since_ms(note: ClockNote, clock: Clock) -> int:
    """Return by how much the wall clock was set since the note; 0 below TOLERANCE_MS."""
    now = read_clocks(clock)
    return beyond_tolerance(now.wall_ms - steady_at(note, now) - note.total_ms)


def beyond_tolerance(ms: int) -> int:
    return ms if abs(ms) >= TOLERANCE_MS else 0


def read_note(connection: meta.Executor) -> ClockNote | None:
    return meta.decode(meta.value(connection, CLOCK_KEY), ClockNote)


def write_note(tx: meta.Executor, note: ClockNote) -> None:
    tx.execute(meta.SET, (CLOCK_KEY, encode(note)))


def encode(note: ClockNote) -> str:
    return msgspec.json.encode(note).decode()


def read_clocks(clock: Clock) -> ClockReading:
    return ClockReading(clock.now_ms(), int(clock.uptime() * 1000), read_boot_id())


@cache
def read_boot_id() -> str:
    """Return this boot's id; empty where the system has none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        return ""
