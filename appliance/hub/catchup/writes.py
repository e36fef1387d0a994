"""Changes topic states, handoff notes and pins, inside their transactions, each with its event."""

import msgspec

from appliance.hub import events
from appliance.hub import queries as hub_queries
from appliance.hub import wire as hub_wire
from appliance.hub.catchup import queries, wire
from appliance.hub.events import encode
from appliance.kernel.batch import Tx
from appliance.kernel.errors import Invalid
from appliance.kernel.idempotency import Reply

_SET_STATE = (
    "INSERT INTO x_topic_states (topic_id, resolved, note, changed_by, changed_at)"
    " VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (topic_id)"
    " DO UPDATE SET resolved = ?2, note = ?3, changed_by = ?4, changed_at = ?5"
)
_SET_HANDOFF = (
    "INSERT INTO x_topic_states (topic_id, handoff, handoff_by, handoff_at, handoff_event,"
    " handoff_version) VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (topic_id) DO UPDATE SET"
    " handoff = ?2, handoff_by = ?3, handoff_at = ?4, handoff_event = ?5, handoff_version = ?6"
)
_PINNED = (
    "SELECT count(*) FROM x_pins AS p JOIN messages AS m ON m.id = p.message_id"
    " WHERE p.channel_id = ? AND m.deleted_at IS NULL"
)
_PIN = "INSERT INTO x_pins (message_id, channel_id, pinned_by, pinned_at) VALUES (?, ?, ?, ?)"


class TopicStateEvent(msgspec.Struct, frozen=True):
    topic_id: str
    note: str
    name: str
    principal: str | None


class HandoffEvent(msgspec.Struct, frozen=True):
    topic_id: str
    handoff: wire.Handoff
    principal: str | None


class PinEvent(msgspec.Struct, frozen=True):
    message_id: str
    name: str
    principal: str | None


def resolve(
    tx: Tx, topic_id: str, command: wire.ChangeTopic, name: str, principal: str | None
) -> Reply:
    return _change_state(
        tx, topic_id, True, TopicStateEvent(topic_id, command.note, name, principal)
    )


def reopen(
    tx: Tx, topic_id: str, command: wire.ChangeTopic, name: str, principal: str | None
) -> Reply:
    return _change_state(
        tx, topic_id, False, TopicStateEvent(topic_id, command.note, name, principal)
    )


def _change_state(tx: Tx, topic_id: str, resolved: bool, data: TopicStateEvent) -> Reply:
    state = queries.state_of(tx, topic_id)
    if state.resolved == resolved:
        return Reply(200, encode(wire.TopicStateChanged(state, changed=False)))
    tx.execute(_SET_STATE, (topic_id, resolved, data.note, data.name, tx.now))
    event = "topic.resolved" if resolved else "topic.reopened"
    return _reply_with_event(tx, event, topic_id, encode(data))


def handoff(
    tx: Tx, topic_id: str, command: wire.WriteHandoff, name: str, principal: str | None
) -> Reply:
    """Replace the note. Raises VersionConflict if the writer has not read the current one."""
    state, newest = queries.state_of(tx, topic_id), queries.head(tx)
    version = 0 if state.handoff is None else state.handoff.version
    if command.expected_version != version:
        raise hub_wire.VersionConflict(
            "the handoff note has another version",
            details={
                "topic_id": topic_id, "expected": command.expected_version, "current": version,
            },
            hint=f"read the note, then replace it with its version: agentlip topic show {topic_id}",
            extra={"current_version": version},
        )  # fmt: skip
    up_to = newest if command.up_to_event is None else command.up_to_event
    if up_to > newest:
        raise Invalid(
            f"up_to_event is after the newest event, {newest}",
            details={"field": "up_to_event", "newest": newest},
            hint="leave it out, or pass an event that you have read",
        )
    note = wire.Handoff(command.note, name, tx.now, up_to, version + 1)
    tx.execute(_SET_HANDOFF, (topic_id, note.note, name, tx.now, up_to, note.version))
    data = encode(HandoffEvent(topic_id, note, principal))
    return _reply_with_event(tx, "topic.handoff", topic_id, data)


def pin(tx: Tx, message_id: str, name: str, principal: str | None) -> Reply:
    message = hub_queries.message(tx, message_id)
    if message.deleted_at is not None:
        raise wire.PinnedDeleted(details={"message_id": message_id})
    if (present := queries.pin_of(tx, message_id)) is not None:
        return Reply(200, encode(wire.PinChanged(present, changed=False)))
    (count,) = tx.execute(_PINNED, (message.channel_id,)).fetchone()
    if count >= wire.PINS_MAX:
        raise wire.TooManyPins(details={"channel_id": message.channel_id, "limit": wire.PINS_MAX})
    added = wire.Pin(message_id, message.channel_id, name, tx.now)
    tx.execute(_PIN, msgspec.structs.astuple(added))
    return _append_pin(tx, "message.pinned", message, added, PinEvent(message_id, name, principal))


def unpin(tx: Tx, message_id: str, name: str, principal: str | None) -> Reply:
    message = hub_queries.message(tx, message_id)
    present = queries.pin_of(tx, message_id)
    if present is None:
        absent = wire.Pin(message_id, message.channel_id, "", "")
        return Reply(200, encode(wire.PinChanged(absent, changed=False)))
    tx.execute("DELETE FROM x_pins WHERE message_id = ?", (message_id,))
    data = PinEvent(message_id, name, principal)
    return _append_pin(tx, "message.unpinned", message, present, data)


def _reply_with_event(tx: Tx, event: str, topic_id: str, data: bytes) -> Reply:
    state = queries.state_of(tx, topic_id)
    number = events.append(
        tx, event, ("topic", topic_id), data, channel_id=state.channel_id, topic_id=topic_id
    )
    return Reply(200, encode(wire.TopicStateChanged(state, True, number)))


def _append_pin(
    tx: Tx, event: str, message: hub_wire.Message, changed: wire.Pin, data: PinEvent
) -> Reply:
    number = events.append(
        tx, event, ("message", message.id), encode(data),
        channel_id=message.channel_id, topic_id=message.topic_id,
    )  # fmt: skip
    return Reply(200, encode(wire.PinChanged(changed, True, number)))
