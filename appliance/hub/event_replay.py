"""Replays events: what channel, topic, message and attachment rows should contain.

Only facts that events state are compared, because other programs write events with fewer fields.
"""

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from appliance.hub import wire
from appliance.hub.columns import ATTACHMENT, CHANNEL, MESSAGE, STORED_MESSAGE, TOPIC
from appliance.hub.wire import TOMBSTONE

State = dict[str, Any]
"""One entity's facts, by column; `content_raw` and others are missing if they aren't known."""

# The event that creates an entity, with its kind, also the entity's name in the payload. Entities
# come after the ones that they refer to.
CREATED = {
    "channel.created": "channel",
    "topic.created": "topic",
    "message.created": "message",
    "topic.attachment_added": "attachment",
}
_TIMES = {"updated_at", "edited_at", "deleted_at"}  # not compared with rows
# Events with these names change a message's version.
_VERSIONED = ("message.edited", "message.deleted", "message.moved_topic")
KINDS = tuple(CREATED.values())
# Each table's columns without the id.
COLUMNS = {
    "channel": wire.Channel.__struct_fields__[1:],
    "topic": wire.Topic.__struct_fields__[1:],
    "message": STORED_MESSAGE[1:],
    "attachment": wire.Attachment.__struct_fields__[1:],
}
ROW = {
    "channel": f"SELECT {CHANNEL} FROM channels WHERE id = ?",
    "topic": f"SELECT {TOPIC} FROM topics WHERE id = ?",
    "message": f"SELECT {MESSAGE}, deleted_at IS NOT NULL AS deleted FROM messages WHERE id = ?",
    "attachment": f"SELECT {ATTACHMENT} FROM topic_attachments WHERE id = ?",
}
TABLES = {
    "message": "messages",
    "topic": "topics",
    "channel": "channels",
    "attachment": "topic_attachments",
}
EVENT = "event_id, ts, name, entity_type, entity_id, data_json"  # a ReplayedEvent
NEWEST = f"SELECT {EVENT} FROM events ORDER BY event_id DESC LIMIT ?"
AFTER = f"SELECT {EVENT} FROM events WHERE event_id > ? ORDER BY event_id LIMIT ?"
OF_ENTITY = f"SELECT {EVENT} FROM events WHERE entity_type = ? AND entity_id = ? ORDER BY event_id"
_decode = msgspec.json.Decoder().decode


class ReplayedEvent(NamedTuple):
    """An event as stored."""

    event_id: int
    ts: str
    name: str
    kind: str
    entity_id: str
    data_json: str


class Break(NamedTuple):
    """An event that doesn't follow from the events before it. `problem`: `gap` or `mixed`."""

    event_id: int
    problem: str
    message: str


def apply(state: State | None, event: ReplayedEvent) -> tuple[State, Break | None]:
    """Return the state after the event, and whether it does not follow the state before.

    `state`: None if no earlier event is known.
    """
    data = payload_of(event.data_json)
    kind = CREATED.get(event.name)
    if kind is not None:
        return _create(state, event, data, kind)
    now: State = dict(state or {})
    problem = _version_break(now, event, data) if event.name in _VERSIONED else None
    if event.name in _VERSIONED:
        _set(now, "version", data.get("version"), int)
    if event.name in ("message.edited", "message.deleted"):
        now["edited_at"] = event.ts
    if event.name == "message.edited":
        _set(now, "content_raw", data.get("new_content"), str)
        if now.get("deleted"):
            del now["deleted"]
    elif event.name == "message.deleted":
        now |= {"deleted": 1, "deleted_at": event.ts}
        _set(now, "deleted_by", data.get("deleted_by"), str)
        # Programs are free in a tombstone's text; this program's events name a principal.
        _set(now, "content_raw", TOMBSTONE if "principal" in data else None, str)
    elif event.name == "message.moved_topic":
        _set(now, "topic_id", data.get("new_topic_id"), str)
    elif event.name == "topic.renamed":
        _set(now, "title", data.get("new_title"), str)
    return now, problem


def _create(
    state: State | None, event: ReplayedEvent, data: Mapping[str, Any], kind: str
) -> tuple[State, Break | None]:
    made = data.get(kind)
    made = made if isinstance(made, dict) else {}
    now = {name: made[name] for name in (*COLUMNS[kind], "principal") if name in made}
    if now.get("principal", "") is None:
        del now["principal"]
    if event.kind == "message" and now:
        now |= {"deleted": 0, "deleted_by": None, "deleted_at": None, "edited_at": None}
    again = None
    if state is not None and made:
        again = Break(
            event.event_id, "mixed", f"{event.name} comes after other events of the same entity"
        )
    return now, again


def _version_break(state: State, event: ReplayedEvent, data: Mapping[str, Any]) -> Break | None:
    before, after = state.get("version"), data.get("version")
    if not isinstance(before, int) or not isinstance(after, int) or after == before + 1:
        return None
    if after <= before:
        message = f"{event.name} has version {after}, but an earlier event has {before}"
        return Break(event.event_id, "mixed", message)
    missing = after - before - 1
    message = f"{missing} events between its versions {before} and {after} are missing"
    return Break(event.event_id, "gap", message)


def _set(state: State, column: str, value: Any, kind: type) -> None:
    """Set a column, which without a usable value is no longer known."""
    if isinstance(value, kind):
        state[column] = value
    else:
        state.pop(column, None)


def payload_of(data_json: str) -> dict[str, Any]:
    """Return the decoded payload; empty if it is not an object."""
    try:
        data = _decode(data_json)
    except msgspec.DecodeError:
        return {}
    return data if isinstance(data, dict) else {}


def row_of(connection: sqlite3.Connection, kind: str, entity_id: str) -> State | None:
    """Return the stored row in a state's shape; None if it is missing."""
    cursor = connection.execute(ROW[kind], (entity_id,))
    row = cursor.fetchone()
    if row is None:
        return None
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def differences(state: State, row: State) -> list[str]:
    """Return the row's columns that differ from the state."""
    names = state.keys() & row.keys() - _TIMES
    return sorted(name for name in names if not _equal(name, state[name], row[name]))


def _equal(name: str, expected: Any, stored: Any) -> bool:
    if name == "principal":
        return stored is None or expected == stored  # other programs store none
    if name == "value_json":
        try:
            return bool(expected == _decode(stored))
        except (msgspec.DecodeError, TypeError):
            return False
    if name == "content_raw" and isinstance(expected, bytes):
        return expected == digest(stored)
    return bool(expected == stored)


def digest(text: str) -> bytes:
    """Return a text's short form, for many messages' states."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def newest(connection: sqlite3.Connection, rows_max: int, bytes_max: int) -> list[ReplayedEvent]:
    """Return the newest events, oldest first."""
    events: list[ReplayedEvent] = []
    size = 0
    for event in map(ReplayedEvent._make, connection.execute(NEWEST, (rows_max,))):
        events.append(event)
        size += len(event.data_json)
        if size > bytes_max:
            break
    return events[::-1]


def all_events(connection: sqlite3.Connection) -> Iterator[list[ReplayedEvent]]:
    """Yield every event in order, in pieces of 5,000."""
    last = -1
    while events := [ReplayedEvent._make(row) for row in connection.execute(AFTER, (last, 5000))]:
        yield events
        last = events[-1].event_id
