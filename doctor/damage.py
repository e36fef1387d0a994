"""Results from SQLite's integrity check, and which results concern only indexes."""

import re
import sqlite3
from collections.abc import Iterable

from appliance.kernel.store_errors import is_damage

COMPLETE = "integrity_check(20)"
QUICK = "quick_check(1)"
# Lines about what REINDEX and a new full-text index make again.
_OF_INDEXES = re.compile(
    r"row \d+ missing from index |wrong # of entries in index |row \d+ values differ from index |"
    r"rowid not at end-of-record for row \d+ of index |.*FTS5 table|.*inverted index"
)


def problems(connection: sqlite3.Connection, pragma: str = COMPLETE) -> list[str]:
    """Return the first lines from a check. Raise sqlite3.Error if the file can't be read."""
    try:
        rows = connection.execute(f"PRAGMA {pragma}").fetchall()
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        rows = [(str(error),)]
    return [" ".join(text.split()) for (text,) in rows if text != "ok"]


def beyond_indexes(texts: Iterable[str]) -> list[str]:
    return [text for text in texts if not _OF_INDEXES.match(text)]
