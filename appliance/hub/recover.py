"""Rebuilds lost rows of the hub from its event log, in a new file that a recovery fills.

Only what events state is rebuilt. Lost events are not made up: rows without their event are kept
and named.
"""

import sqlite3
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from appliance.hub.event_replay import COLUMNS, TABLES, ReplayedEvent, State, apply, payload_of
from appliance.hub.wire import TOMBSTONE
from appliance.kernel.event_ids import keep_sequence
from appliance.recovery.copying import Copying
from appliance.recovery.damaged import DamagedFile

INDEX_OF_MESSAGE_IDS = "sqlite_autoindex_messages_1"
PRINCIPALS = "x_message_principals"
NAMED_MAX = 20
PROGRESS_EVENTS = 10_000
_CREATED = {
    "channel.created": "channel",
    "topic.created": "topic",
    "message.created": "message",
    "topic.attachment_added": "attachment",
}
# One row for each entity whose row is lost. `row_number`: the rowid of a message, known or assumed.
_MAKE = (
    "CREATE TABLE temp.rebuilt (kind TEXT NOT NULL, id TEXT NOT NULL, state BLOB NOT NULL,"
    " row_number INTEGER, certain INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (kind, id)) STRICT,"
    " WITHOUT ROWID"
)
_COLUMNS = {
    "channel": ("name", "description", "created_at"),
    "topic": ("channel_id", "title", "created_at", "updated_at"),
    "message": (
        "topic_id", "channel_id", "sender", "content_raw", "version", "created_at", "edited_at",
        "deleted_at", "deleted_by",
    ),
    "attachment": (
        "topic_id", "kind", "key", "value_json", "dedupe_key", "source_message_id", "created_at",
    ),
}  # fmt: skip
_CURSORS = ("SELECT max(cursor) FROM x_plugin_cursors", "SELECT max(cursor) FROM x_webhooks")


def finish(copying: Copying) -> None:
    """Adds what the events state of lost rows, and names rows whose events are lost."""
    lacking = {name for name in copying.result if copying.lacks(name)}
    rebuilding = Rebuilding(copying.damaged, copying.target, lacking, copying.progress)
    rebuilt = rebuilding.run()
    for name, rows in rebuilt.items():
        copying.add_rebuilt(name, rows)
    if rebuilt and "events" in lacking:
        copying.notes.append("events are lost, so rebuilt rows may lack later changes")
    count, named = _rows_without_events(copying.target)
    if count:
        more = ", …" if count > len(named) else ""
        copying.notes.append(
            f"kept, although their events are lost: {count} ({', '.join(named)}{more})"
        )


class Rebuilding:
    """Fills rows that are missing in `target` from its events.

    incomplete   the tables that may lack rows; others are left as they are, because a row that
                 another program deleted still has its event
    """

    def __init__(
        self,
        damaged: DamagedFile,
        target: sqlite3.Connection,
        incomplete: Collection[str],
        progress: Callable[[str, int], None],
    ) -> None:
        self._damaged = damaged
        self._target = target
        self._kinds = frozenset(kind for kind, table in TABLES.items() if table in incomplete)
        self._lacks_principals = PRINCIPALS in incomplete
        self._progress = progress
        self._topics: set[str] = set()
        self._principals = 0

    def run(self) -> dict[str, int]:
        """The number of rebuilt rows, by table."""
        self._keep_event_ids()
        if not self._kinds and not self._lacks_principals:
            return {}
        self._target.execute(_MAKE)
        self._replay()
        self._find_numbers()
        rebuilt = {TABLES[kind]: self._insert_all(kind) for kind in _COLUMNS}
        rebuilt[PRINCIPALS] = self._principals
        return rebuilt

    def _replay(self) -> None:
        """Collects the states of all entities without a row, in the order of the events."""
        row_number = 0
        events = self._target.execute(f"SELECT {COLUMNS} FROM events ORDER BY event_id")
        for number, event in enumerate(map(ReplayedEvent._make, events), 1):
            if number % PROGRESS_EVENTS == 0:
                self._progress("events replayed", number)
            if event.name == "message.created":
                self._keep_principal(event)
                row_number = self._number_of(event.entity_id) or row_number + 1
            created = _CREATED.get(event.name)
            if created in self._kinds and not self._exists(created, event.entity_id):
                self._put(created, event.entity_id, apply(None, event)[0], row_number)
                if created == "topic":
                    self._topics.add(event.entity_id)
            elif created is None and (state := self._state(event)) is not None:
                self._put(event.kind, event.entity_id, apply(state, event)[0])
            self._touch_topic(event)

    def _number_of(self, message_id: str) -> int | None:
        row = self._target.execute("SELECT rowid FROM messages WHERE id = ?", (message_id,))
        return next((number for (number,) in row), None)

    def _exists(self, kind: str, entity_id: str) -> bool:
        table = TABLES[kind]
        query = f"SELECT 1 FROM {table} WHERE id = ?"
        return self._target.execute(query, (entity_id,)).fetchone() is not None

    def _state(self, event: ReplayedEvent) -> State | None:
        row = self._target.execute(
            "SELECT state FROM temp.rebuilt WHERE kind = ? AND id = ?",
            (event.kind, event.entity_id),
        ).fetchone()
        return None if row is None else msgspec.json.decode(row[0])

    def _put(self, kind: str, entity_id: str, state: State, row_number: int | None = None) -> None:
        self._target.execute(
            "INSERT INTO temp.rebuilt (kind, id, state, row_number) VALUES (?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET state = excluded.state",
            (
                kind,
                entity_id,
                msgspec.json.encode(state),
                row_number if kind == "message" else None,
            ),
        )

    def _keep_principal(self, event: ReplayedEvent) -> None:
        """A message's principal has a table of its own, which may have lost other rows."""
        principal = apply(None, event)[0].get("principal")
        if (self._lacks_principals or "message" in self._kinds) and isinstance(principal, str):
            self._principals += self._target.execute(
                f"INSERT OR IGNORE INTO {PRINCIPALS} VALUES (?, ?)", (event.entity_id, principal)
            ).rowcount

    def _touch_topic(self, event: ReplayedEvent) -> None:
        """The time of the last message or title of a rebuilt topic."""
        if not self._topics:
            return
        state = apply(None, event)[0] if event.name == "message.created" else {}
        if event.name == "message.moved_topic":
            topic = _text(event.data_json, "new_topic_id")
        else:
            topic = event.entity_id if event.name == "topic.renamed" else state.get("topic_id")
        if topic not in self._topics:
            return
        self._target.execute(
            "UPDATE temp.rebuilt SET state = CAST(json_set(CAST(state AS TEXT), '$.updated_at', ?)"
            " AS BLOB) WHERE kind = 'topic' AND id = ?",
            (event.ts, topic),
        )

    def _find_numbers(self) -> None:
        """The rowids of lost messages, where the index of message ids still has them."""
        if self._target.execute("SELECT 1 FROM temp.rebuilt WHERE kind = 'message'").fetchone():
            entries = self._damaged.entries(INDEX_OF_MESSAGE_IDS)
            self._target.executemany(
                "UPDATE temp.rebuilt SET row_number = ?, certain = 1"
                " WHERE kind = 'message' AND id = ?",
                ((number, text) for text, number in entries),
            )

    def _insert_all(self, kind: str) -> int:
        rows = self._target.execute(
            "SELECT id, state, row_number FROM temp.rebuilt WHERE kind = ?"
            " ORDER BY certain DESC, row_number, id",
            (kind,),
        )
        return sum(
            self._insert(kind, entity_id, msgspec.json.decode(state), row_number)
            for entity_id, state, row_number in rows
        )

    def _insert(self, kind: str, entity_id: str, state: State, row_number: int | None) -> bool:
        names = ["id", *_COLUMNS[kind]]
        values = [entity_id, *(_value(name, state) for name in _COLUMNS[kind])]
        if row_number is not None and not self._is_taken(row_number):
            names, values = ["rowid", *names], [row_number, *values]
        marks = ", ".join("?" * len(names))
        try:
            return bool(
                self._target.execute(
                    f"INSERT OR IGNORE INTO {TABLES[kind]} ({', '.join(names)}) VALUES ({marks})",
                    values,
                ).rowcount
            )
        except (sqlite3.Error, OverflowError):  # the event lacks a column, or has another type
            return False

    def _is_taken(self, row_number: int) -> bool:
        query = "SELECT 1 FROM messages WHERE rowid = ?"
        return self._target.execute(query, (row_number,)).fetchone() is not None

    def _keep_event_ids(self) -> None:
        """Makes sure that ids of lost events are not used again: clients would skip new events."""
        known = [self._target.execute(query).fetchone()[0] or 0 for query in _CURSORS]
        keep_sequence(self._target, "events", max(known))


def _rows_without_events(target: sqlite3.Connection) -> tuple[int, list[str]]:
    """How many channels, topics, messages and attachments have no event of creation; the first."""
    count = 0
    named: list[str] = []
    for name, kind in _CREATED.items():
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


def _text(data_json: str, key: str) -> str | None:
    value = payload_of(data_json).get(key)
    return value if isinstance(value, str) else None
