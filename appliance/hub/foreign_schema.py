"""Adapts a hub database that another program created or changed, or that came from another machine.

This runs at every start; most starts change nothing.
"""

import sqlite3
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from appliance.kernel import meta
from appliance.kernel.ids import encode_ulid, ulid_value

IdOrder = Literal["id", "rowid"]
SEARCH_TRIGGERS = ("messages_fts_update", "messages_fts_delete", "x_cjk_update")
FOREIGN_TRIGGER = "messages_fts_insert"  # left by another program; messages would be indexed twice
ROWID_INDEXES = (
    "CREATE INDEX IF NOT EXISTS x_messages_topic ON messages(topic_id)",
    "CREATE INDEX IF NOT EXISTS x_messages_channel ON messages(channel_id)",
)
"""For the order `rowid`: a plain index ends with the rowid, so it serves paging by creation."""
_MESSAGE_PREFIX = "msg_"
_RANDOM_BITS = 80


class HubSchema:
    """The hub store's adapter: other programs that follow the hub specification may have created
    the file, or may write there between two starts."""

    spec_version = 1

    def first_facts(self) -> list[tuple[str, str]]:
        return [("db_id", str(uuid.uuid4())), ("schema_version", str(self.spec_version))]

    def optional_steps_work(self, connection: sqlite3.Connection) -> bool:
        return search_ready(connection)

    def missing_columns(
        self, connection: sqlite3.Connection, model: sqlite3.Connection
    ) -> list[str]:
        """Return the specification's columns that `model` has and `connection` lacks, as
        `table.column`."""
        return sorted(_columns(model) - _columns(connection))

    def more_objects(self, connection: sqlite3.Connection) -> Sequence[str]:
        return ROWID_INDEXES if meta.read(connection, "x_id_order") == "rowid" else ()

    def settle(
        self,
        connection: sqlite3.Connection,
        optional_missing: Sequence[str],
        *,
        adopted: bool,
        now_ms: int,
        log: Any,
    ) -> None:
        """Store the message order, and remove search triggers that would fail."""
        stored_order = meta.read(connection, "x_id_order")
        order = find_id_order(connection, now_ms)
        if not order.changed and not optional_missing:
            if order.advanced:
                # On a full disk, the next start compares again.
                with suppress(sqlite3.OperationalError):
                    store_checked(connection, order)
            return
        dropped = False
        try:
            connection.execute("BEGIN IMMEDIATE")
            if order.changed:
                store_id_order(connection, order)
            for name in optional_missing:
                dropped = drop_search_triggers(connection) or dropped
                connection.execute("DELETE FROM x_migrations WHERE name = ?", (name,))
            connection.execute("COMMIT")
        except sqlite3.Error:
            if connection.in_transaction:  # a full disk may have rolled back already
                connection.execute("ROLLBACK")
            raise
        if adopted:
            log.info("adopted another program's workspace", id_order=order.order)
        elif stored_order == "id" and order.changed:
            log.warning(
                "another program added messages whose ids do not sort after ours; messages are"
                " now ordered by creation",
                id_order=order.order,
            )
        if dropped:
            log.warning(
                "search triggers that don't work with this SQLite were removed", store="hub"
            )


def id_order(connection: sqlite3.Connection) -> IdOrder:
    """Return the column that orders messages by creation, for a program that only reads the
    file.

    `rowid` is always correct, as messages are never deleted. `id` is faster and correct if the last
    start stored it and no other program has added messages since, whose ids need not sort after
    earlier ones. Takes two index seeks.
    """
    if meta.read(connection, "x_id_order") != "id":
        return "rowid"
    newest, greatest = connection.execute(
        "SELECT (SELECT id FROM messages ORDER BY rowid DESC LIMIT 1),"
        " (SELECT max(id) FROM messages)"
    ).fetchone()
    return "id" if newest == greatest else "rowid"


class IdOrderCheck(NamedTuple):
    """A file's message order, and the last compared message."""

    order: IdOrder
    changed: bool  # differs from the stored order, or none is stored
    checked: tuple[int, str]
    advanced: bool  # more messages were compared than is stored


def find_id_order(connection: sqlite3.Connection, now_ms: int) -> IdOrderCheck:
    """Compare the ids of messages added since the last check. `rowid`, once stored, stays.

    Call it at every start, because another program may have written in between.
    """
    stored = meta.read(connection, "x_id_order")
    checked = _checked(connection)
    if stored == "rowid":
        return IdOrderCheck("rowid", False, checked, False)
    ordered, newest = _ids_increase(connection, checked)
    order: IdOrder = "id" if ordered and _new_ids_sort_last(connection, now_ms) else "rowid"
    return IdOrderCheck(order, order != stored, newest, newest != checked)


def store_id_order(connection: sqlite3.Connection, check: IdOrderCheck) -> None:
    """Store the order, in the caller's transaction."""
    if check.order == "rowid":
        for statement in ROWID_INDEXES:
            connection.execute(statement)
    connection.execute(meta.SET, ("x_id_order", check.order))
    store_checked(connection, check)


def store_checked(connection: sqlite3.Connection, check: IdOrderCheck) -> None:
    connection.execute(meta.SET, ("x_id_checked", f"{check.checked[0]} {check.checked[1]}"))


def _new_ids_sort_last(connection: sqlite3.Connection, now_ms: int) -> bool:
    """Return whether every new `msg_<ULID>` will be greater than all existing ids."""
    (last,) = connection.execute("SELECT max(id) FROM messages").fetchone()
    if last is None or last < _MESSAGE_PREFIX + encode_ulid(now_ms << _RANDOM_BITS):
        return True
    # A ULID from the future: new ids continue above it.
    return last.startswith(_MESSAGE_PREFIX) and ulid_value(last) is not None


def _checked(connection: sqlite3.Connection) -> tuple[int, str]:
    """Return the last message whose id was checked; (0, "") if unknown, or if that row changed."""
    number, _, last_id = (meta.read(connection, "x_id_checked") or "").partition(" ")
    if number.isdecimal():
        row = connection.execute("SELECT id FROM messages WHERE rowid = ?", (int(number),))
        if row.fetchone() == (last_id,):
            return int(number), last_id
    return 0, ""


def _ids_increase(
    connection: sqlite3.Connection, checked: tuple[int, str]
) -> tuple[bool, tuple[int, str]]:
    """Return whether all ids after `checked` increase with the rowid, and the last one that
    does."""
    number, previous = checked
    rows = connection.execute(
        "SELECT rowid, id FROM messages WHERE rowid > ? ORDER BY rowid", (number,)
    )
    for row_number, message_id in rows:
        if message_id <= previous:
            return False, (number, previous)
        number, previous = row_number, message_id
    return True, (number, previous)


def _columns(connection: sqlite3.Connection) -> set[str]:
    """Return the columns of the specification's tables, which have no prefix."""
    rows = connection.execute(
        "SELECT t.name || '.' || c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c"
        " WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        " AND t.name NOT LIKE 'x\\_%' ESCAPE '\\'"
    )
    return {name for (name,) in rows}


def search_ready(connection: sqlite3.Connection) -> bool:
    """Return whether the full-text index exists, works with this SQLite, and is updated by
    triggers."""
    names = (*SEARCH_TRIGGERS, "x_fts", "x_cjk", "x_cjk_changed", "x_cjk_messages")
    if not all(meta.exists(connection, name) for name in names):
        return False
    if meta.exists(connection, FOREIGN_TRIGGER):
        return False
    try:
        connection.execute("SELECT 1 FROM messages_fts LIMIT 1").fetchone()
    except sqlite3.DatabaseError:  # without FTS5, or with a damaged index
        return False
    return True


def drop_search_triggers(connection: sqlite3.Connection) -> bool:
    """Remove triggers that would fail or corrupt the index. Returns whether there were any."""
    candidates = (*SEARCH_TRIGGERS, FOREIGN_TRIGGER)
    present = [name for name in candidates if meta.exists(connection, name)]
    for trigger in present:
        connection.execute(f"DROP TRIGGER {trigger}")
    # Without these tables the hub indexes no messages; a partial index would fail.
    for table in ("x_fts", "x_cjk", "x_cjk_changed"):
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    return bool(present)
