"""The newest event id that was given out, noted in a file beside the store that numbers events.

A store that is put back, or whose log is removed, opens without an error, and would give out the
same ids again. So its writer notes the newest id after each commit, before anybody gets a reply.
The note is written into the page cache only, which survives a kill. After a power failure it may be
older than the store, and then nothing is noticed. It is newer than the store only if commits were
lost: also with `store.synchronous = "NORMAL"`, whose commits are not synced.
"""

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from appliance.kernel import meta
from appliance.kernel.ownership import open_own, read_small

FILE = "newest-event"
_DIGITS = 20


class NewestEvent(NamedTuple):
    """The highest event id that was given out until now, and the epoch of that moment."""

    number: int
    epoch: str


def read(folder: Path) -> NewestEvent | None:
    """The note in a data directory; None if there is none or it can't be read."""
    words = (read_small(folder / FILE) or b"").decode("ascii", "replace").split()
    if len(words) != 2 or len(words[0]) != _DIGITS or not words[0].isdecimal():
        return None
    return NewestEvent(int(words[0]), words[1])


def begin(folder: Path, epoch: str, number: int) -> None:
    """Write the note of a start. On a full or read-only disk the former one stays, which notices
    less."""
    with suppress(OSError):
        descriptor = open_own(folder / FILE, os.O_WRONLY | os.O_CREAT)
        try:
            os.pwrite(descriptor, f"{number:0{_DIGITS}} {epoch}\n".encode(), 0)
        finally:
            os.close(descriptor)


class EventIdNote:
    """The note of a running store, for its writer. Without the file of `begin` it does nothing."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = -1
        with suppress(OSError):
            self._descriptor = open_own(folder / FILE, os.O_WRONLY)

    def write(self, number: int) -> None:
        if self._descriptor >= 0:
            with suppress(OSError):  # an older note notices less
                os.pwrite(self._descriptor, b"%0*d" % (_DIGITS, number), 0)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def newest(connection: sqlite3.Connection) -> int:
    """The highest id that the store ever gave to an event, also if that event is gone."""
    highest = 0
    if meta.exists(connection, "events"):
        row = connection.execute("SELECT max(event_id) FROM events").fetchone()
        highest = int(row[0] or 0)
    if meta.exists(connection, "sqlite_sequence"):
        query = "SELECT max(seq) FROM sqlite_sequence WHERE name = 'events'"
        highest = max(highest, int(connection.execute(query).fetchone()[0] or 0))
    return highest


def keep_sequence(target: sqlite3.Connection, table: str, number: int) -> None:
    """The next row of a table with AUTOINCREMENT gets a higher number than `number`."""
    target.execute("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", (number, table))
    target.execute(
        "INSERT INTO sqlite_sequence (name, seq) SELECT ?1, ?2 WHERE NOT EXISTS"
        " (SELECT 1 FROM sqlite_sequence WHERE name = ?1)",
        (table, number),
    )
