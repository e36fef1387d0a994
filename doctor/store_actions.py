"""Actions on stores that build derived data again, and change no row of people or agents."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from appliance.hub.foreign_schema import SEARCH_TRIGGERS, drop_search_triggers
from appliance.kernel import meta
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Conflict
from appliance.kernel.migration import Migration, load, statements
from doctor import schema_model

Arguments = Mapping[str, str]
RECREATED = ("index", "trigger", "view")
FREE_SHARE_MIN = 0.25  # a store with fewer unused pages is not vacuumed
_PAGE_ROWS = 500
UNSCOPED = (
    "scope_channel_id IS NULL AND scope_topic_id IS NULL AND scope_topic_id2 IS NULL"
    " AND entity_type IN ('channel', 'topic', 'message', 'attachment', 'topic_attachment')"
)
IMMUTABLE = "prevent_event_mutation"
_NEXT_UNSCOPED = (
    "SELECT event_id, name, entity_type, entity_id, data_json FROM events"
    f" WHERE {UNSCOPED} AND event_id > ? ORDER BY event_id LIMIT ?"
)
_INDEX_ALL = "INSERT INTO messages_fts(messages_fts) VALUES ('rebuild')"


class CannotRepair(Conflict):
    code = "CANNOT_REPAIR"
    default_message = "this can't be repaired automatically"
    default_hint = "agentlip doctor --all"


Change = Callable[[sqlite3.Connection, Arguments, Clock], str]
"""Changes a store in the caller's transaction, and says what it did. `vacuum` is the exception."""


def in_transaction(
    connection: sqlite3.Connection, change: Change, arguments: Arguments, clock: Clock
) -> str:
    """Makes the change in a transaction of its own."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        done = change(connection, arguments, clock)
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        raise
    return done


# -- files and indexes ---------------------------------------------------------------------


def free_share(connection: sqlite3.Connection) -> float:
    """The share of a store's pages that contain nothing."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    return free / pages if pages else 0.0


def vacuum(connection: sqlite3.Connection, arguments: Arguments, clock: Clock) -> str:
    """Rewrites the file without unused pages. Call it outside a transaction."""
    share = free_share(connection)
    if share < FREE_SHARE_MIN:
        return f"only {share:.0%} of the pages are unused"
    # The full-text index knows messages by rowid, which VACUUM may renumber where numbers are
    # missing. Without x_fts it counts as missing, so an interruption here does no harm.
    indexed = arguments["store"] == "hub" and meta.exists(connection, "x_fts")
    renumbered = indexed and not _numbered_without_gaps(connection)
    if renumbered:
        connection.execute("DROP TABLE x_fts")
    connection.execute("VACUUM")
    if renumbered:
        in_transaction(connection, rebuild_fts, arguments, clock)
    return f"{share:.0%} of the pages were unused"


def _numbered_without_gaps(connection: sqlite3.Connection) -> bool:
    count, last = connection.execute("SELECT count(*), max(rowid) FROM messages").fetchone()
    return bool(count == (last or 0))


def reindex(connection: sqlite3.Connection, _arguments: Arguments, _clock: Clock) -> str:
    """Builds every index of the store again."""
    connection.execute("REINDEX")
    (count,) = connection.execute(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'index'"
    ).fetchone()
    return f"built {count} indexes again"


def recreate_object(connection: sqlite3.Connection, arguments: Arguments, _clock: Clock) -> str:
    """Creates an index, a trigger or a view again as the migrations make it."""
    store, name = arguments["store"], arguments["object"]
    if name in SEARCH_TRIGGERS:  # changes that it missed are not in the index
        raise CannotRepair(
            f"{name}: the full-text index has to be built again",
            hint="agentlip doctor repair rebuild fts --yes",
        )
    wanted = schema_model.expected(connection, store).get(name)
    if wanted is None or wanted.kind not in RECREATED:
        raise CannotRepair(f"{name}: not an index, a trigger or a view of this program")
    there = schema_model.actual(connection).get(name)
    if there is not None:
        if there.kind != wanted.kind:
            raise CannotRepair(f"{name}: a {there.kind} has its name")
        if schema_model.normal(there.sql) == schema_model.normal(wanted.sql):
            return f"the {wanted.kind} is as the migrations made it"
        source = f'{wanted.kind} "{name}"'
        connection.execute(f"DROP {source}")
    connection.execute(wanted.sql)
    return f"created the {wanted.kind}"


def drop_trigger(connection: sqlite3.Connection, arguments: Arguments, _clock: Clock) -> str:
    """Removes a trigger that is not of this program."""
    name = arguments["object"]
    if name in schema_model.expected(connection, arguments["store"]):
        raise CannotRepair(f"{name}: it is of this program")
    trigger = name.replace('"', '""')
    connection.execute(f'DROP TRIGGER IF EXISTS "{trigger}"')
    return "removed the trigger"


# -- the full-text index -------------------------------------------------------------------


def rebuild_fts(connection: sqlite3.Connection, arguments: Arguments, clock: Clock) -> str:
    """Applies the migration that makes the full-text index again."""
    _make_fts(connection, arguments["store"], clock)
    (count,) = connection.execute("SELECT count(*) FROM messages").fetchone()
    return f"indexed {count} messages"


def restart_fts(connection: sqlite3.Connection, arguments: Arguments, clock: Clock) -> str:
    """Makes an empty full-text index again. The running hub fills it in batches, as it does with
    new messages; until then searches also read the messages that are not in it."""
    _make_fts(connection, arguments["store"], clock, filled=False)
    connection.execute("UPDATE x_fts SET indexed = 0")
    (count,) = connection.execute("SELECT count(*) FROM messages").fetchone()
    return f"made an empty index; the hub now indexes {count} messages in the background"


def _make_fts(
    connection: sqlite3.Connection, store: str, clock: Clock, *, filled: bool = True
) -> None:
    if not has_fts5(connection):
        raise CannotRepair("this Python's SQLite has no FTS5, so it can't make the index")
    drop_search_triggers(connection)
    for migration in optional_steps(store):
        connection.execute("DELETE FROM x_migrations WHERE name = ?", (migration.name,))
        for statement in statements(migration):
            if filled or _INDEX_ALL not in statement:
                connection.execute(statement)
        connection.execute(
            "INSERT INTO x_migrations (number, name, sha256, applied_ms) VALUES (?, ?, ?, ?)",
            (migration.number, migration.name, migration.sha256, clock.now_ms()),
        )


def has_fts5(connection: sqlite3.Connection) -> bool:
    row = connection.execute(
        "SELECT 1 FROM pragma_module_list WHERE name = 'fts5' COLLATE NOCASE"
    ).fetchone()
    return row is not None


def optional_steps(store: str) -> list[Migration]:
    return [migration for migration in load(store) if migration.optional]


# -- scopes of events ----------------------------------------------------------------------


class EventScope(NamedTuple):
    channel_id: str | None
    topic_id: str | None = None
    topic_id2: str | None = None


class UnscopedEvent(NamedTuple):
    event_id: int
    name: str
    entity_type: str
    entity_id: str
    data_json: str


def fill_event_scopes(connection: sqlite3.Connection, _arguments: Arguments, _clock: Clock) -> str:
    """Fills the empty scopes of events from their own payload, and from earlier events of the same
    message. The rest of each event stays as it is."""
    trigger = connection.execute(
        "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name = ?", (IMMUTABLE,)
    ).fetchone()
    if trigger is not None:
        connection.execute(f"DROP TRIGGER {IMMUTABLE}")
    filled = left = 0
    topics = _topics_of_messages(connection)
    for event in _unscoped(connection):
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
    unknown = f"; the scope of {left} can't be known from their payload" if left else ""
    return f"filled the scopes of {filled} events{unknown}"


def _unscoped(connection: sqlite3.Connection) -> Iterator[UnscopedEvent]:
    last = -1
    while rows := connection.execute(_NEXT_UNSCOPED, (last, _PAGE_ROWS)).fetchall():
        last = rows[-1][0]
        yield from (UnscopedEvent(*row) for row in rows)


def _topics_of_messages(connection: sqlite3.Connection) -> dict[int, str]:
    """The topic of the message at the time of each unscoped event that doesn't name it."""
    wanted = {event.entity_id: event for event in _unscoped(connection) if _needs_topic(event)}
    if not wanted:
        return {}
    now: dict[str, str] = {}
    topics = {}
    rows = connection.execute(
        "SELECT event_id, name, entity_id, data_json FROM events WHERE entity_type = 'message'"
        " ORDER BY event_id"
    )
    for event_id, name, message, data_json in rows:
        if message not in wanted:
            continue
        payload = _payload(data_json)
        if name == "message.created":
            topic = _text(_object(payload, "message"), "topic_id")
        else:
            topic = _text(payload, "new_topic_id") if name == "message.moved_topic" else None
        if topic is not None:
            now[message] = topic
        if message in now:
            topics[event_id] = now[message]
    return topics


def _needs_topic(event: UnscopedEvent) -> bool:
    return event.entity_type == "message" and event.name not in (
        "message.created",
        "message.moved_topic",
    )


def _scope_of(
    connection: sqlite3.Connection, event: UnscopedEvent, topics: Mapping[int, str]
) -> EventScope | None:
    payload = _payload(event.data_json)
    kind = event.entity_type
    if kind == "channel":
        return EventScope(event.entity_id)
    if event.name == "message.moved_topic":
        old, new = _text(payload, "old_topic_id"), _text(payload, "new_topic_id")
        channel = _text(payload, "channel_id") or _channel_of(connection, old)
        return None if channel is None or old is None else EventScope(channel, old, new)
    if kind == "topic":
        named: str | None = event.entity_id
    elif kind == "message":
        named = _text(_object(payload, "message"), "topic_id") or topics.get(event.event_id)
    else:
        named = _text(_object(payload, "attachment"), "topic_id")
    channel = _channel_of(connection, named)
    if channel is None:
        own = _object(payload, "message" if kind == "message" else kind)
        channel = _text(own, "channel_id")
    return None if channel is None else EventScope(channel, named)


def _channel_of(connection: sqlite3.Connection, topic_id: str | None) -> str | None:
    row = connection.execute("SELECT channel_id FROM topics WHERE id = ?", (topic_id,)).fetchone()
    return None if row is None else str(row[0])


def _payload(data_json: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data_json)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _object(payload: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = payload.get(key)
    return value if isinstance(value, dict) else {}


def _text(payload: Mapping[str, Any], key: str) -> str | None:
    value = payload.get(key)
    return value if isinstance(value, str) and value else None
