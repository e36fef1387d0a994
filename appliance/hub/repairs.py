"""Rebuilds parts in the hub's store, and changes messages."""

import sqlite3
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from appliance.checks.repairs import CannotRepair, Change, DerivedPart
from appliance.hub import message_repair
from appliance.hub.event_replay import EVENT, ReplayedEvent, all_events, apply, payload_of
from appliance.hub.foreign_schema import FOREIGN_TRIGGER, SEARCH_TRIGGERS, drop_search_triggers
from appliance.kernel import meta
from appliance.kernel.clock import Clock
from appliance.workspace.migration import load, statements

_PAGE_ROWS = 500
_NEXT_UNSCOPED = (
    f"SELECT {EVENT} FROM events"
    " WHERE scope_channel_id IS NULL AND scope_topic_id IS NULL AND scope_topic_id2 IS NULL"
    " AND entity_type IN ('channel', 'topic', 'message', 'attachment', 'topic_attachment')"
    " AND event_id > ? ORDER BY event_id LIMIT ?"
)
_IMMUTABLE = "prevent_event_mutation"
_INDEX_ALL = "INSERT INTO messages_fts(messages_fts) VALUES ('rebuild')"


# -- the full-text index ---------------------------------------------------------------------


def restart_fts(connection: sqlite3.Connection, store: str, clock: Clock) -> str:
    """Make an empty full-text index by its migration. The hub fills the index in batches, as with
    new messages; until then searches also read unindexed messages."""
    if not has_fts5(connection):
        raise CannotRepair("this Python's SQLite has no FTS5, so the index can't be built")
    drop_search_triggers(connection)
    for migration in load(store):
        if not migration.optional:
            continue
        connection.execute("DELETE FROM x_migrations WHERE name = ?", (migration.name,))
        for statement in statements(migration):
            if _INDEX_ALL not in statement:
                connection.execute(statement)
        connection.execute(
            "INSERT INTO x_migrations (number, name, sha256, applied_ms) VALUES (?, ?, ?, ?)",
            (migration.number, migration.name, migration.sha256, clock.now_ms()),
        )
    connection.execute("UPDATE x_fts SET indexed = 0")
    (count,) = connection.execute("SELECT count(*) FROM messages").fetchone()
    return f"made an empty index; the hub indexes {count} messages in the background"


def _forget_fts(connection: sqlite3.Connection) -> bool:
    """Forget the index, which knows messages by rowid, which changes where numbers are missing.
    Without x_fts it counts as missing, so an interruption does no harm."""
    if not meta.exists(connection, "x_fts"):
        return False
    count, last = connection.execute("SELECT count(*), max(rowid) FROM messages").fetchone()
    if count == (last or 0):
        return False
    connection.execute("DROP TABLE x_fts")
    return True


def has_fts5(connection: sqlite3.Connection) -> bool:
    row = connection.execute(
        "SELECT 1 FROM pragma_module_list WHERE name = 'fts5' COLLATE NOCASE"
    ).fetchone()
    return row is not None


# -- event scopes --------------------------------------------------------------------------


EventScope = tuple[str, str | None, str | None]  # channel id, topic id, second topic id


def _fill_event_scopes(connection: sqlite3.Connection, _store: str, _clock: Clock) -> str:
    """Fill events' empty scopes from the payload, and from the message's earlier events. The rest
    of each event stays unchanged."""
    trigger = connection.execute(
        "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name = ?", (_IMMUTABLE,)
    ).fetchone()
    if trigger is not None:
        connection.execute(f"DROP TRIGGER {_IMMUTABLE}")
    filled = left = 0
    topics = _topics_of_messages(connection)
    for event in _read_unscoped(connection):
        scope = _scope_of(connection, event, topics)
        if scope is None:
            left += 1
            continue
        connection.execute(
            "UPDATE events SET scope_channel_id = ?, scope_topic_id = ?, scope_topic_id2 = ?"
            " WHERE event_id = ?",
            (*scope, event.event_id),
        )
        filled += 1
    if trigger is not None:
        connection.execute(trigger[0])
    unknown = f"; the scope for {left} can't be known from their payload" if left else ""
    return f"filled the scopes for {filled} events{unknown}"


def _read_unscoped(connection: sqlite3.Connection) -> Iterator[ReplayedEvent]:
    last = -1
    while rows := connection.execute(_NEXT_UNSCOPED, (last, _PAGE_ROWS)).fetchall():
        last = rows[-1][0]
        yield from map(ReplayedEvent._make, rows)


def _topics_of_messages(connection: sqlite3.Connection) -> dict[int, str]:
    """Return each event's topic at its time, for messages with an event that has no scope."""
    wanted = {event.entity_id for event in _read_unscoped(connection) if event.kind == "message"}
    now: dict[str, str] = {}
    topics = {}
    for event in chain.from_iterable(all_events(connection)) if wanted else ():
        if event.kind == "message" and event.entity_id in wanted:
            stated, _ = apply(None, event)
            topic = _text(stated, "topic_id") or now.get(event.entity_id)
            if topic is not None:
                now[event.entity_id] = topics[event.event_id] = topic
    return topics


def _scope_of(
    connection: sqlite3.Connection, event: ReplayedEvent, topics: Mapping[int, str]
) -> EventScope | None:
    payload = payload_of(event.data_json)
    kind = event.kind
    if kind == "channel":
        return event.entity_id, None, None
    if event.name == "message.moved_topic":
        old, new = _text(payload, "old_topic_id"), _text(payload, "new_topic_id")
        channel = _text(payload, "channel_id") or _channel_of(connection, old)
        return None if channel is None or old is None else (channel, old, new)
    if kind == "topic":
        named: str | None = event.entity_id
    elif kind == "message":
        named = topics.get(event.event_id)
    else:
        named = _text(_object(payload, "attachment"), "topic_id")
    channel = _channel_of(connection, named)
    if channel is None:
        channel = _text(_object(payload, kind), "channel_id")
    return None if channel is None else (channel, named, None)


def _channel_of(connection: sqlite3.Connection, topic_id: str | None) -> str | None:
    row = connection.execute("SELECT channel_id FROM topics WHERE id = ?", (topic_id,)).fetchone()
    return None if row is None else str(row[0])


def _object(payload: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = payload.get(key)
    return value if isinstance(value, dict) else {}


def _text(payload: Mapping[str, Any], key: str) -> str | None:
    value = payload.get(key)
    return value if isinstance(value, str) and value else None


# -- what is declared ------------------------------------------------------------------------

FTS = DerivedPart(
    name="fts",
    message="build the full-text index for {} again",
    build=restart_fts,
    checks=("hub.search", "hub.search-in-step"),
    stores=("hub",),
    needs_indexes=False,
    triggers=(*SEARCH_TRIGGERS, FOREIGN_TRIGGER),
    module="FTS5",
    forget=_forget_fts,
)
SCOPES = DerivedPart(
    name="event-scopes",
    message="fill in scopes for events from {} with their payload's values",
    build=_fill_event_scopes,
    checks=("events.scope",),
    stores=("hub",),
)
PARTS = (FTS, SCOPES)
CHANGES: dict[str, Change] = {"restore-message": message_repair.restore_message}
