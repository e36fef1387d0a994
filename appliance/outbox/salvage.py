"""What can still be read of a damaged outbox: its sends, and ids whose sends are lost.

A page that is damaged takes the rows on it, and no others: so ranges of rows are halved until
what can't be read is alone. Ids stand a second time in their index, on pages of their own.
"""

import sqlite3
from collections.abc import Iterator
from typing import Any

from appliance.outbox.columns import COLUMNS, Row

ROW_BYTES_MIN = 64  # no row takes less of the file, so there are no more rows than that
_READ = f"SELECT rowid, {COLUMNS} FROM outbox WHERE rowid BETWEEN ? AND ? ORDER BY rowid"
_IDS = "SELECT client_message_id, rowid FROM outbox INDEXED BY {} ORDER BY client_message_id {}"


def sends(connection: sqlite3.Connection, file_bytes: int) -> Iterator[Row]:
    """Every send that can be read, in the order of acceptance."""
    last = _last_number(connection, file_bytes)
    ranges = [(1, last)]
    while ranges:
        first, last = ranges.pop()
        try:
            for row in connection.execute(_READ, (first, last)):
                first = row[0] + 1
                yield Row(*row[1:])
        except (sqlite3.DatabaseError, UnicodeError):
            if first < last:
                middle = (first + last) // 2
                ranges += [(middle + 1, last), (first, middle)]


def ids(connection: sqlite3.Connection) -> dict[str, int]:
    """Ids that were used, and the numbers of their rows, by the index of ids; it is read from
    both ends, each up to where it is damaged."""
    found: dict[str, int] = {}
    index = _index_of_ids(connection)
    if index is None:
        return found
    for order in ("ASC", "DESC"):
        try:
            for client_message_id, number in connection.execute(_IDS.format(index, order)):
                if isinstance(client_message_id, str):
                    found[client_message_id] = number
        except (sqlite3.DatabaseError, UnicodeError):
            continue
        break
    return found


def _index_of_ids(connection: sqlite3.Connection) -> str | None:
    try:
        for _, name, unique, *_ in connection.execute("PRAGMA index_list(outbox)"):
            columns = [row[2] for row in connection.execute(f"PRAGMA index_info('{name}')")]
            if unique and columns == ["client_message_id"]:
                return f'"{name}"'
    except sqlite3.DatabaseError:
        pass
    return None


def _last_number(connection: sqlite3.Connection, file_bytes: int) -> int:
    """A number that no row is above: rows are numbered from 1, and none was ever deleted."""
    try:
        row: Any = connection.execute("SELECT max(rowid) FROM outbox").fetchone()
        if isinstance(row[0], int):
            return int(row[0])
    except sqlite3.DatabaseError:
        pass
    return max([*ids(connection).values(), file_bytes // ROW_BYTES_MIN])
