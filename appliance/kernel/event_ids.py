"""The ids of events: the newest one that was given out, also as the note beside the store."""

import sqlite3
from pathlib import Path

from appliance.kernel import meta, number_note
from appliance.kernel.number_note import Noted, NumberNote
from appliance.kernel.store_declaration import NEWEST_EVENT


def read(folder: Path) -> Noted | None:
    """The note in a data directory: the newest event id, and the epoch of that moment."""
    return number_note.read(folder / NEWEST_EVENT)


def begin(folder: Path, epoch: str, number: int) -> None:
    """Write the note of a start."""
    note = NumberNote(folder / NEWEST_EVENT)
    note.begin(number, epoch)
    note.close()


def newest(connection: sqlite3.Connection) -> int:
    """The highest id that the store ever gave to an event, also if that event is gone."""
    highest = 0
    if meta.exists(connection, "events"):
        row = connection.execute("SELECT max(event_id) FROM events").fetchone()
        highest = int(row[0] or 0)
    return max(highest, sequence(connection, "events"))


def sequence(connection: sqlite3.Connection, table: str) -> int:
    """The highest number that a table with AUTOINCREMENT has given out; 0 without one."""
    if not meta.exists(connection, "sqlite_sequence"):
        return 0
    query = "SELECT max(seq) FROM sqlite_sequence WHERE name = ?"
    return int(connection.execute(query, (table,)).fetchone()[0] or 0)


def keep_sequence(target: sqlite3.Connection, table: str, number: int) -> None:
    """The next row of a table with AUTOINCREMENT gets a higher number than `number`."""
    target.execute("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", (number, table))
    target.execute(
        "INSERT INTO sqlite_sequence (name, seq) SELECT ?1, ?2 WHERE NOT EXISTS"
        " (SELECT 1 FROM sqlite_sequence WHERE name = ?1)",
        (table, number),
    )
