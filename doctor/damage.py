"""What SQLite's integrity check finds in a store, and which of it is only of indexes."""

import re
import sqlite3
from collections.abc import Iterable

from appliance.kernel.readlimit import is_interrupt

_PROBLEMS_MAX = 20
# Lines about what REINDEX and a new full-text index make again.
_OF_INDEXES = re.compile(
    r"row \d+ missing from index |wrong # of entries in index |row \d+ values differ from index |"
    r"rowid not at end-of-record for row \d+ of index |.*FTS5 table|.*inverted index"
)


def problems(connection: sqlite3.Connection) -> list[str]:
    """The first lines of a complete check. Raises sqlite3.OperationalError if it is interrupted."""
    try:
        rows = connection.execute(f"PRAGMA integrity_check({_PROBLEMS_MAX})").fetchall()
    except sqlite3.DatabaseError as error:
        if is_interrupt(error):
            raise
        return [str(error)]
    return [text for (text,) in rows if text != "ok"]


def beyond_indexes(texts: Iterable[str]) -> list[str]:
    return [text for text in texts if not _OF_INDEXES.match(text)]
