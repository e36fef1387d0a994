"""Counts a store's commits in its `meta`, and notes the number outside the store.

A store that numbers events uses the newest event's number, and a shared store its newest row's
number, because other programs don't count.
"""

import sqlite3
from pathlib import Path

from appliance.kernel import event_ids, meta, number_note
from appliance.kernel.number_note import Noted, NumberNote
from appliance.kernel.store_declaration import declaration_of, note_of, path_of

KEY = "x_commits"


def read(workspace: Path, store: str) -> Noted | None:
    """Return the newest commit's number, and the id for its store or epoch."""
    return number_note.read(workspace / note_of(store))


def newest(connection: sqlite3.Connection, store: str) -> int:
    """Return the newest commit's number in the file."""
    if declaration_of(store).numbers_events:
        return event_ids.newest(connection)
    if table := declaration_of(store).commits:
        return event_ids.sequence(connection, table)
    return int(meta.read(connection, KEY) or 0)


class CommitCount:
    """An open store's commit number, for the store's writer."""

    def __init__(self, connection: sqlite3.Connection, database: Path, store: str) -> None:
        declaration, folder = declaration_of(store), path_of(store).rpartition("/")[0]
        self._connection, self._store = connection, store
        self._table = "events" if declaration.numbers_events else declaration.commits
        self._numbered = bool(self._table) and meta.exists(connection, "sqlite_sequence")
        self._next = 0
        self._note = NumberNote(database.parent / Path(note_of(store)).relative_to(folder))
        if declaration.numbers_events:  # the subsystem begins the note, with the epoch
            self._note.open()
            return
        self._number = newest(connection, store)
        self._note.begin(self._number, meta.read(connection, declaration.id_key) or "")

    def count(self) -> None:
        """Count a commit. Call `count` inside each transaction that has changed something."""
        if self._numbered:
            [(highest,)] = self._connection.execute(event_ids.HIGHEST, (self._table,))
            self._next = int(highest or 0)
        elif not self._table:
            self._next = self._number + 1
            self._connection.execute(meta.SET, (KEY, str(self._next)))

    def note(self) -> None:
        """Note the number outside the store. Call `note` after the commit."""
        self._number = self._next
        self._note.write(self._number)

    def close(self) -> None:
        self._note.close()
