"""Full-text search in messages. The index belongs to this program and can be made again.

The index has a message's sender, type, correlation and inline payload, but no payloads from blobs.
Other programs don't write the index, so a search first adds new messages.
"""

import sqlite3
from collections.abc import Callable

from appliance.busfile.file import snapshot, transaction
from appliance.busfile.messages import COLUMNS, BusMessage, to_message
from appliance.kernel.errors import Invalid, StorageFull, Unavailable

INDEX_BATCH_MAX = 1000  # messages in one transaction
INDEX_STEPS_MAX = 100  # transactions before one search; a longer backlog is for the next one
SEARCH_MAX = 200
QUERY_LENGTH_MAX = 1000


class SearchUnavailable(Unavailable):
    code = "BUS_SEARCH_UNAVAILABLE"
    default_message = "this SQLite has no full-text search"
    default_hint = "use a Python whose SQLite has FTS5: python3 -c 'import sqlite3'"


def search(connection: sqlite3.Connection, text: str, limit: int = 50) -> list[BusMessage]:
    """Find messages after indexing new ones. Outside a transaction."""

    def write(function: Callable[[sqlite3.Connection], int]) -> int:
        with transaction(connection):
            return function(connection)

    index_new(write)
    with snapshot(connection):
        return find(connection, text, limit)


def index_new(write: Callable[[Callable[[sqlite3.Connection], int]], int]) -> None:
    """Index new messages. `write` calls a function in a transaction. Raises StorageFull."""
    try:
        for _ in range(INDEX_STEPS_MAX):
            if not write(index):
                break
    except StorageFull as full:
        raise type(full)("new messages can't be indexed: nothing can be written here") from None


def find(connection: sqlite3.Connection, text: str, limit: int = 50) -> list[BusMessage]:
    """Return indexed messages with all words in `text`, newest first. Raises Invalid."""
    words = text[: QUERY_LENGTH_MAX + 1].split()
    if not words or len(text) > QUERY_LENGTH_MAX:
        raise Invalid(f"search for words, up to {QUERY_LENGTH_MAX:,} characters")
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM x_messages_fts f JOIN messages ON seq = f.rowid"
        " WHERE x_messages_fts MATCH ? ORDER BY f.rowid DESC LIMIT ?",
        (" ".join('"' + word.replace('"', '""') + '"' for word in words), min(limit, SEARCH_MAX)),
    )
    return [to_message(row) for row in rows]


def index(connection: sqlite3.Connection) -> int:
    """Add the next messages to the index. Return how many; 0 if it is complete."""
    _create(connection)
    query = "SELECT rowid FROM x_messages_fts ORDER BY rowid DESC LIMIT 1"
    (last,) = connection.execute(query).fetchone() or (0,)
    added = connection.execute(
        "INSERT INTO x_messages_fts (rowid, content) SELECT seq, from_agent || ' ' || type"
        " || ' ' || coalesce(correlation_id, '') || ' ' || coalesce(payload, '')"
        " FROM messages WHERE seq > ? ORDER BY seq LIMIT ?",
        (last, INDEX_BATCH_MAX),
    )
    return added.rowcount


def _create(connection: sqlite3.Connection) -> None:
    try:
        connection.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS x_messages_fts USING fts5 (content, content = '')"
        )
    except sqlite3.OperationalError as error:
        if "no such module" in str(error):
            raise SearchUnavailable from None
        raise
