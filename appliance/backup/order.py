"""Sorts backups in the order of creation, although clocks are set back and forth.

A backup's newest event decides. Event ids rise within an epoch, and a restore, which opens the next
epoch, jumps ahead of all ids given out before. Times decide only between backups with an equal
newest event; a time from the future then loses.
"""

from collections.abc import Iterable
from typing import Protocol, TypeVar

FUTURE_MS = 2000  # clocks differ by less


class Ordered(Protocol):
    """A sortable backup. `last_event_id`: None for an unreadable manifest; then the backups with
    earlier names determine the place."""

    @property
    def name(self) -> str: ...
    @property
    def cut_ms(self) -> int: ...
    @property
    def last_event_id(self) -> int | None: ...


B = TypeVar("B", bound=Ordered)


def in_order(backups: Iterable[B], now_ms: int) -> list[B]:
    """Sort backups, oldest first."""
    keys: dict[str, tuple[int, bool, int, str]] = {}
    by_time, highest = sorted(backups, key=lambda backup: (backup.cut_ms, backup.name)), 0
    for backup in by_time:
        number = highest if backup.last_event_id is None else backup.last_event_id
        highest = max(highest, number)
        past = not is_future(backup.cut_ms, now_ms)
        keys[backup.name] = (number, past, backup.cut_ms, backup.name)
    return sorted(by_time, key=lambda backup: keys[backup.name])


def is_future(at_ms: int, now_ms: int) -> bool:
    """Return whether the clock was ahead at that time, or is set back now."""
    return at_ms > now_ms + FUTURE_MS
