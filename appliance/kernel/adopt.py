"""What a hub's file may lack when another program made it, or another machine opens it.

Everything here is safe to run at every start: it looks first, and mostly finds nothing to do.
"""

import sqlite3
from typing import Literal

from appliance.kernel.ids import encode_ulid, ulid_value

IdOrder = Literal["id", "rowid"]
SEARCH_TRIGGERS = ("messages_fts_update", "messages_fts_delete", "x_cjk_update")
FOREIGN_TRIGGER = "messages_fts_insert"  # another program's: it would index a message twice
_MESSAGE_PREFIX = "msg_"
_RANDOM_BITS = 80


def has_tables(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is not None


def meta(connection: sqlite3.Connection, key: str) -> str | None:
    """A value of the table meta; None also where there is no such table."""
    if not _exists(connection, "meta"):
        return None
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def id_order(connection: sqlite3.Connection) -> IdOrder:
    """By what the messages of this file are in the order of their creation.

    `id` in every file we made. A file of another program may carry random ids; there it is
    the rowid, which SQLite counts upwards as long as nothing is deleted. Stored when the
    file is adopted; until then the messages themselves are looked through: ask once.
    """
    stored = meta(connection, "x_id_order")
    if stored is None:
        return "rowid" if _disordered(connection) else "id"
    return "rowid" if stored == "rowid" else "id"


def decide_id_order(connection: sqlite3.Connection, now_ms: int) -> IdOrder:
    """`id` if all ids so far rise with the rowid and every new `msg_<ULID>` will follow them."""
    if _disordered(connection):
        return "rowid"
    (last,) = connection.execute("SELECT max(id) FROM messages").fetchone()
    if last is None or last < _MESSAGE_PREFIX + encode_ulid(now_ms << _RANDOM_BITS):
        return "id"
    # From the future, but one of ours: the factory of ids goes on above it.
    ours = last.startswith(_MESSAGE_PREFIX) and ulid_value(last) is not None
    return "id" if ours else "rowid"


def _disordered(connection: sqlite3.Connection) -> bool:
    row = connection.execute(
        "SELECT 1 FROM (SELECT id, lag(id) OVER (ORDER BY rowid) AS previous FROM messages)"
        " WHERE previous >= id LIMIT 1"
    ).fetchone()
    return row is not None


def settle_id_order(connection: sqlite3.Connection, now_ms: int) -> IdOrder | None:
    """Stores the decision, inside the caller's transaction; None if it was stored before."""
    if meta(connection, "x_id_order") is not None:
        return None
    order = decide_id_order(connection, now_ms)
    if order == "rowid":
        # A plain index ends in the rowid, which makes it the index for paging by creation.
        connection.execute("CREATE INDEX IF NOT EXISTS x_messages_topic ON messages(topic_id)")
        connection.execute("CREATE INDEX IF NOT EXISTS x_messages_channel ON messages(channel_id)")
    connection.execute("INSERT INTO meta (key, value) VALUES ('x_id_order', ?)", (order,))
    return order


def missing_columns(connection: sqlite3.Connection, model: sqlite3.Connection) -> list[str]:
    """Columns that `model` has and `connection` lacks, as `table.column`."""
    return sorted(_columns(model) - _columns(connection))


def _columns(connection: sqlite3.Connection) -> set[str]:
    rows = connection.execute(
        "SELECT t.name || '.' || c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c"
        " WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    )
    return {name for (name,) in rows}


def search_ready(connection: sqlite3.Connection) -> bool:
    """Whether the full-text index is there, usable by this SQLite, and kept in step."""
    parts = (*SEARCH_TRIGGERS, "x_fts", "x_cjk", "x_cjk_changed", "x_cjk_messages")
    if not all(_exists(connection, name) for name in parts):
        return False
    if _exists(connection, FOREIGN_TRIGGER):
        return False
    try:
        connection.execute("SELECT 1 FROM messages_fts LIMIT 1").fetchone()
    except sqlite3.DatabaseError:  # no such module, as on a machine without FTS5; or damaged
        return False
    return True


def drop_search_triggers(connection: sqlite3.Connection) -> bool:
    """Takes away triggers that would fail, or spoil the index, at every message. True if any."""
    candidates = (*SEARCH_TRIGGERS, FOREIGN_TRIGGER)
    present = [name for name in candidates if _exists(connection, name)]
    for trigger in present:
        connection.execute(f"DROP TRIGGER {trigger}")
    # Without it the hub takes no message in: it would fail, or do so into half an index.
    for table in ("x_fts", "x_cjk", "x_cjk_changed"):
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    return bool(present)


def _exists(connection: sqlite3.Connection, name: str) -> bool:
    return (
        connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (name,)).fetchone()
        is not None
    )
