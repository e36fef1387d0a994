"""Notices when the wall clock was set, while the process runs and between two runs.

Times that are kept for longer than a process lives are wall times. When the clock is set they mean
other instants than before, so whoever keeps them has to move them by as much as the clock moved.
"""

from pathlib import Path

import msgspec

from appliance.kernel.clock import Clock

TOLERANCE_MS = 2000
"""Smaller steps are what time synchronization does every day; they are followed silently."""

CLOCK_KEY = "clock"
"""Of the note in a store's table `meta`."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class ClockReading(msgspec.Struct, frozen=True):
    """Both clocks at one moment, as they are stored. `boot_id` says when `uptime_ms` began."""

    wall_ms: int
    uptime_ms: int
    boot_id: str


class ClockNote(msgspec.Struct, frozen=True):
    """What a store remembers of clocks: the newest reading, the last time one was set, and the sum
    of all jumps."""

    reading: ClockReading
    jump_ms: int = 0
    jumped_at: str | None = None
    total_ms: int = 0


def encoded(note: ClockNote) -> str:
    return msgspec.json.encode(note).decode()


def decoded(text: str | None) -> ClockNote | None:
    """A stored note; None where there is none, or one that makes no sense."""
    try:
        return None if text is None else msgspec.json.decode(text, type=ClockNote)
    except msgspec.DecodeError:
        return None


class ClockWatch:
    """Compares the wall clock with one that nobody can set."""

    def __init__(self, clock: Clock, boot_id: str | None = None) -> None:
        self._clock = clock
        self._boot_id = read_boot_id() if boot_id is None else boot_id
        self._offset_ms = self._offset()

    def reading(self) -> ClockReading:
        return ClockReading(self._clock.now_ms(), int(self._clock.uptime() * 1000), self._boot_id)

    def jump_ms(self) -> int:
        """By how much the clock was set since the last call; 0 for less than TOLERANCE_MS."""
        before, self._offset_ms = self._offset_ms, self._offset()
        return _beyond_tolerance(self._offset_ms - before)

    def jump_since_ms(self, past: ClockReading) -> int:
        """The same since a reading of an earlier process.

        After a restart of the machine only a clock that is now earlier is known to be set: a later
        one may be right, for the machine may have been off for that long.
        """
        now = self.reading()
        wall_ms = now.wall_ms - past.wall_ms
        if past.boot_id and past.boot_id == now.boot_id:
            return _beyond_tolerance(wall_ms - (now.uptime_ms - past.uptime_ms))
        return _beyond_tolerance(min(0, wall_ms))

    def _offset(self) -> int:
        return self._clock.now_ms() - int(self._clock.uptime() * 1000)


def read_boot_id() -> str:
    """Of this start of the machine; empty where the system has none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        return ""


def _beyond_tolerance(ms: int) -> int:
    return ms if abs(ms) >= TOLERANCE_MS else 0
