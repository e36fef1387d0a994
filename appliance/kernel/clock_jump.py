"""Detects that the wall clock was set, while the process runs and between two runs.

Stored times are wall times. When the clock is set, they have to be moved by the same amount.
"""

from pathlib import Path

import msgspec

from appliance.kernel.clock import Clock

TOLERANCE_MS = 2000
"""Smaller steps are ordinary time synchronization and are ignored."""

CLOCK_KEY = "clock"
"""The key of the note in a store's table `meta`."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class ClockReading(msgspec.Struct, frozen=True):
    """Both clocks at one moment, as stored. `uptime_ms` counts since the boot `boot_id`."""

    wall_ms: int
    uptime_ms: int
    boot_id: str


class ClockNote(msgspec.Struct, frozen=True):
    """What a store records of clocks: the newest reading, when the clock was last set, and the sum
    of all jumps."""

    reading: ClockReading
    jump_ms: int = 0
    jumped_at: str | None = None
    total_ms: int = 0


def encoded(note: ClockNote) -> str:
    return msgspec.json.encode(note).decode()


def decoded(text: str | None) -> ClockNote | None:
    """A stored note; None if there is none or it can't be decoded."""
    try:
        return None if text is None else msgspec.json.decode(text, type=ClockNote)
    except msgspec.DecodeError:
        return None


class ClockWatch:
    """Compares the wall clock with the uptime, which can't be set."""

    def __init__(self, clock: Clock, boot_id: str | None = None) -> None:
        self._clock = clock
        self._boot_id = read_boot_id() if boot_id is None else boot_id
        self._offset_ms = self._offset()

    def reading(self) -> ClockReading:
        return ClockReading(self._clock.now_ms(), int(self._clock.uptime() * 1000), self._boot_id)

    def jump_ms(self) -> int:
        """By how much the clock was set since the last call; 0 below TOLERANCE_MS."""
        before, self._offset_ms = self._offset_ms, self._offset()
        return _beyond_tolerance(self._offset_ms - before)

    def jump_since_ms(self, past: ClockReading) -> int:
        """By how much the clock was set since a reading of an earlier process.

        After a reboot only a clock that went back is known to have been set: a later one may be
        right, because the machine may have been off for that long.
        """
        now = self.reading()
        wall_ms = now.wall_ms - past.wall_ms
        if past.boot_id and past.boot_id == now.boot_id:
            return _beyond_tolerance(wall_ms - (now.uptime_ms - past.uptime_ms))
        return _beyond_tolerance(min(0, wall_ms))

    def _offset(self) -> int:
        return self._clock.now_ms() - int(self._clock.uptime() * 1000)


def read_boot_id() -> str:
    """The id of this boot; empty where the system has none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        return ""


def _beyond_tolerance(ms: int) -> int:
    return ms if abs(ms) >= TOLERANCE_MS else 0
