"""Finds the newest event id that was given out, also in the note beside the store."""

import sqlite3
from pathlib import Path

from appliance.kernel import meta, number_note
from appliance.kernel.number_note import Noted, NumberNote
from appliance.kernel.store_declaration import NEWEST_EVENT

HIGHEST = "SELECT max(seq) FROM sqlite_sequence WHERE name = ?"


def read(folder: Path) -> Noted | None:
    """Return a data directory's note: the newest event id, and the epoch at that moment."""
    return number_note.read(folder / NEWEST_EVENT)


def begin(folder: Path, epoch: str, number: int) -> None:
    """Write a start's note."""
    note = NumberNote(folder / NEWEST_EVENT)
    note.begin(number, epoch)
    note.close()


def newest(connection: sqlite3.Connection) -> int:
    """Return the highest id that the store ever gave to an event, even if that event is gone."""
    highest = 0
    if meta.exists(connection, "events"):
        row = connection.execute("SELECT max(event_id) FROM events").fetchone()
        highest = int(row[0] or 0)
    return max(highest, sequence(connection, "events"))


def sequence(connection: sqlite3.Connection, table: str) -> int:
    """Return the highest number that a table with AUTOINCREMENT has given out; 0 without one."""
    if not meta.exists(connection, "sqlite_sequence"):
        return 0
    return int(connection.execute(HIGHEST, (table,)).fetchone()[0] or 0)


def keep_sequence(target: sqlite3.Connection, table: str, number: int) -> None:
    """Give the next row in a table with AUTOINCREMENT a higher number than `number`."""
    target.execute("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", (number, table))
    target.execute(
        "INSERT INTO sqlite_sequence (name, seq) SELECT ?1, ?2 WHERE NOT EXISTS"
        " (SELECT 1 FROM sqlite_sequence WHERE name = ?1)",
        (table, number),
    )
