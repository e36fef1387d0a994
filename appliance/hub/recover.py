"""Rebuilds lost rows of the hub from its event log, in a new file that a recovery fills.

Only what events state is rebuilt. Lost events are not made up: rows without their event are kept
and named.
"""

import sqlite3
from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec

from appliance.hub.event_replay import COLUMNS, CREATED, TABLES, ReplayedEvent, State, apply
from appliance.hub.wire import TOMBSTONE
from appliance.kernel.event_ids import keep_sequence
from appliance.recovery.copying import Copying

INDEX_OF_MESSAGE_IDS = "sqlite_autoindex_messages_1"
PRINCIPALS = "x_message_principals"
NAMED_MAX = 20
# The entities of one kind whose rows are lost, with each creating event. `row_number`: a message's
# rowid, if the message id index still has one.
_MAKE = (
    "CREATE TABLE temp.missing (entity_id TEXT PRIMARY KEY, created INTEGER NOT NULL,"
    " row_number INTEGER) STRICT, WITHOUT ROWID"
)
_EVENTS = (
    "SELECT m.row_number, e.event_id, ts, name, entity_type, e.entity_id, data_json"
    " FROM events AS e CROSS JOIN temp.missing AS m ON m.entity_id = e.entity_id"
    " ORDER BY m.row_number IS NULL, m.row_number, m.created, e.event_id"
)
_PRINCIPALS = (
    f"INSERT OR IGNORE INTO {PRINCIPALS} SELECT entity_id,"
    " json_extract(data_json, '$.message.principal') FROM events WHERE name = 'message.created'"
    " AND CASE WHEN json_valid(data_json)"
    " THEN json_type(data_json, '$.message.principal') = 'text' END"
)
_TOPIC_USED = (
    "UPDATE topics SET updated_at = max(updated_at, coalesce((SELECT max(ts) FROM events WHERE"
    " scope_topic_id = ?1 AND name IN ('message.created', 'topic.renamed')), ''),"
    " coalesce((SELECT max(ts) FROM events WHERE scope_topic_id2 = ?1), '')) WHERE id = ?1"
)
_CURSORS = ("SELECT max(cursor) FROM x_plugin_cursors", "SELECT max(cursor) FROM x_webhooks")


def finish(copying: Copying) -> None:
    """Add what the events state about lost rows, and name rows whose events are lost."""
    rebuilding = Rebuilding(copying)
    rebuilt = rebuilding.run()
    for name, rows in rebuilt.items():
        copying.add_rebuilt(name, rows)
    if rebuilt and "events" in rebuilding.incomplete:
        copying.notes.append("events are lost, so rebuilt rows may lack later changes")
    count, named = _rows_without_events(copying.target)
    if count:
        more = ", …" if count > len(named) else ""
        copying.notes.append(
            f"kept, although their events are lost: {count} ({', '.join(named)}{more})"
        )


class Rebuilding:
    """Fills rows that are missing in the new file from its events.

    incomplete   the tables that may lack rows; all others are left unchanged, because a row that
                 another program deleted still has its event
    """

    def __init__(self, copying: Copying) -> None:
        self._damaged = copying.damaged
        self._target = copying.target
        self.incomplete = {name for name in copying.result if copying.lacks(name)}

    def run(self) -> dict[str, int]:
        """Return how many rows were rebuilt, by table."""
        self._keep_event_ids()
        rebuilt = {}
        self._target.execute(_MAKE)
        for name, kind in CREATED.items():
            if TABLES[kind] in self.incomplete:
                rebuilt[TABLES[kind]] = self._rebuild(name, kind)
        if PRINCIPALS in self.incomplete or "messages" in rebuilt:
            rebuilt[PRINCIPALS] = self._target.execute(_PRINCIPALS).rowcount
        return rebuilt

    def _rebuild(self, name: str, kind: str) -> int:
        """Write a kind's missing rows, as their events describe them."""
        table = TABLES[kind]
        self._target.execute("DELETE FROM temp.missing")
        self._target.execute(
            "INSERT OR IGNORE INTO temp.missing (entity_id, created)"
            " SELECT entity_id, event_id FROM events WHERE name = ?"
            f" AND entity_id NOT IN (SELECT id FROM {table}) ORDER BY event_id",
            (name,),
        )
        if kind == "message":
            self._target.executemany(
                "UPDATE temp.missing SET row_number = ? WHERE entity_id = ?",
                ((number, text) for text, number in self._damaged.entries(INDEX_OF_MESSAGE_IDS)),
            )
        rebuilt = 0
        rows = groupby(self._target.execute(_EVENTS), key=itemgetter(5))
        for entity_id, events in rows:
            (row_number, *first), *later = events
            state, _ = apply(None, ReplayedEvent._make(first))
            for _, *event in later:
                state, _ = apply(state, ReplayedEvent._make(event))
            if kind == "message":
                row_number = row_number or self._number_after(first[0])
            rebuilt += self._insert(kind, entity_id, state, row_number)
            if kind == "topic":
                self._target.execute(_TOPIC_USED, (entity_id,))
        return rebuilt

    def _number_after(self, event_id: int) -> int:
        """Return the rowid after the message before this event."""
        row = self._target.execute(
            "SELECT m.rowid FROM events AS e JOIN messages AS m ON m.id = e.entity_id"
            " WHERE e.name = 'message.created' AND e.event_id < ? ORDER BY e.event_id DESC LIMIT 1",
            (event_id,),
        ).fetchone()
        return 1 if row is None else int(row[0]) + 1

    def _insert(self, kind: str, entity_id: str, state: State, row_number: int | None) -> bool:
        names = ["id", *COLUMNS[kind]]
        values = [entity_id, *(_value(name, state) for name in COLUMNS[kind])]
        if row_number is not None and not self._is_taken(row_number):
            names, values = ["rowid", *names], [row_number, *values]
        marks = ", ".join("?" * len(names))
        insert = f"INSERT OR IGNORE INTO {TABLES[kind]} ({', '.join(names)}) VALUES ({marks})"
        try:
            return bool(self._target.execute(insert, values).rowcount)
        except (sqlite3.Error, OverflowError):  # the event lacks a column, or has another type
            return False

    def _is_taken(self, row_number: int) -> bool:
        query = "SELECT 1 FROM messages WHERE rowid = ?"
        return self._target.execute(query, (row_number,)).fetchone() is not None

    def _keep_event_ids(self) -> None:
        """Keep lost events' ids from being used again: clients would skip new events."""
        known = [self._target.execute(query).fetchone()[0] or 0 for query in _CURSORS]
        keep_sequence(self._target, "events", max(known))


def _rows_without_events(target: sqlite3.Connection) -> tuple[int, list[str]]:
    """Return how many channels, topics, messages and attachments have no creation event; and the
    first."""
    count = 0
    named: list[str] = []
    for name, kind in CREATED.items():
        table = TABLES[kind]
        query = f"SELECT id FROM {table} EXCEPT SELECT entity_id FROM events WHERE name = ?"
        (number,) = target.execute(f"SELECT count(*) FROM ({query})", (name,)).fetchone()
        count += number
        rows = target.execute(f"{query} LIMIT ?", (name, NAMED_MAX - len(named)))
        named += [f"{kind} {entity_id}" for (entity_id,) in rows]
    return count, named


def _value(name: str, state: Mapping[str, Any]) -> Any:
    value = state.get(name)
    if name == "content_raw" and value is None and state.get("deleted"):
        return TOMBSTONE
    if name == "updated_at" and value is None:
        return state.get("created_at")
    return msgspec.json.encode(value).decode() if isinstance(value, dict) else value
