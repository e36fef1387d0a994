"""What a hub's file may lack when another program made it, or another machine opens it.

Everything here is safe to run at every start: it looks first, and mostly finds nothing to do.
"""

import sqlite3
from typing import Literal, NamedTuple

from appliance.kernel.ids import encode_ulid, ulid_value

IdOrder = Literal["id", "rowid"]
SEARCH_TRIGGERS = ("messages_fts_update", "messages_fts_delete", "x_cjk_update")
FOREIGN_TRIGGER = "messages_fts_insert"  # another program's: it would index a message twice
_MESSAGE_PREFIX = "msg_"
_RANDOM_BITS = 80
_SET_META = (
    "INSERT INTO meta (key, value) VALUES (?, ?)"
    " ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)


def has_tables(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is not None


def meta(connection: sqlite3.Connection, key: str) -> str | None:
    """A value of the table meta; None also where there is no such table."""
    if not _exists(connection, "meta"):
        return None
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def id_order(connection: sqlite3.Connection) -> IdOrder:
    """The column that orders messages by creation, for a program that only reads the file.

    `rowid` is always right, as long as nothing is deleted; `id` is quicker, and right where a
    start of ours decided so and no other program has added messages since: their ids need not
    sort after ours. Two index seeks.
    """
    if meta(connection, "x_id_order") != "id":
        return "rowid"
    newest, greatest = connection.execute(
        "SELECT (SELECT id FROM messages ORDER BY rowid DESC LIMIT 1),"
        " (SELECT max(id) FROM messages)"
    ).fetchone()
    return "id" if newest == greatest else "rowid"


class OrderFound(NamedTuple):
    """How the messages of a file are ordered, and the last one that was compared."""

    order: IdOrder
    changed: bool  # it differs from what the file says, or the file says nothing
    checked: tuple[int, str]
    advanced: bool  # more messages were compared than the file says


def find_id_order(connection: sqlite3.Connection, now_ms: int) -> OrderFound:
    """Compares the ids of the messages that were added since the last time.

    To be called at every open: another program may have written since. `rowid` stays.
    """
    stored = meta(connection, "x_id_order")
    checked = _checked(connection)
    if stored == "rowid":
        return OrderFound("rowid", False, checked, False)
    ordered, newest = _rising(connection, checked)
    order: IdOrder = "id" if ordered and _ours_follow(connection, now_ms) else "rowid"
    return OrderFound(order, order != stored, newest, newest != checked)


def store_id_order(connection: sqlite3.Connection, found: OrderFound) -> None:
    """In the caller's transaction."""
    if found.order == "rowid":
        # A plain index ends in the rowid, which makes it the index for paging by creation.
        connection.execute("CREATE INDEX IF NOT EXISTS x_messages_topic ON messages(topic_id)")
        connection.execute("CREATE INDEX IF NOT EXISTS x_messages_channel ON messages(channel_id)")
    connection.execute(_SET_META, ("x_id_order", found.order))
    store_checked(connection, found)


def store_checked(connection: sqlite3.Connection, found: OrderFound) -> None:
    connection.execute(_SET_META, ("x_id_checked", f"{found.checked[0]} {found.checked[1]}"))


def _ours_follow(connection: sqlite3.Connection, now_ms: int) -> bool:
    """Whether every new `msg_<ULID>` will be greater than all ids so far."""
    (last,) = connection.execute("SELECT max(id) FROM messages").fetchone()
    if last is None or last < _MESSAGE_PREFIX + encode_ulid(now_ms << _RANDOM_BITS):
        return True
    # From the future, but one of ours: the factory of ids goes on above it.
    return last.startswith(_MESSAGE_PREFIX) and ulid_value(last) is not None


def _checked(connection: sqlite3.Connection) -> tuple[int, str]:
    """Up to which message ids were found to rise; (0, "") if unknown, or if that row changed."""
    number, _, last_id = (meta(connection, "x_id_checked") or "").partition(" ")
    if number.isdecimal():
        row = connection.execute("SELECT id FROM messages WHERE rowid = ?", (int(number),))
        if row.fetchone() == (last_id,):
            return int(number), last_id
    return 0, ""


def _rising(
    connection: sqlite3.Connection, checked: tuple[int, str]
) -> tuple[bool, tuple[int, str]]:
    """Whether all ids after `checked` rise with the rowid, and the last one that does."""
    number, previous = checked
    rows = connection.execute(
        "SELECT rowid, id FROM messages WHERE rowid > ? ORDER BY rowid", (number,)
    )
    for row_number, message_id in rows:
        if message_id <= previous:
            return False, (number, previous)
        number, previous = row_number, message_id
    return True, (number, previous)


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
