"""Moves messages to another topic in their channel (hub spec §0.14, ADR-0004).

Each message gets a separate event, scoped to the old topic, the new topic and the channel. Any
number of messages takes one INSERT and one UPDATE over one selection.
"""

from appliance.hub import wire
from appliance.hub.events import CommittedEvent, encode
from appliance.hub.writes import message_to_change
from appliance.kernel.batch import Tx
from appliance.kernel.idempotency import Reply

MOVED = "message.moved_topic"
# This JSON equals an encoded `wire.MessageMoved`; a test compares them.
DATA = (
    "json_object('message_id', id, 'old_topic_id', topic_id, 'new_topic_id', ?,"
    " 'channel_id', channel_id, 'mode', ?, 'version', version + 1, 'principal', ?)"
)


def move(
    tx: Tx,
    message_id: str,
    command: wire.MoveMessage,
    source: str | None,
    order: str,
    messages_max: int,
    principal: str | None,
) -> Reply:
    """Move one message, also the later ones, or the whole topic.

    source  the topic in which the caller saw the message; refused after a move
    order   the column that orders messages by creation
    """
    anchor = message_to_change(tx, message_id, command.expected_version)
    target = command.to_topic_id
    if anchor.topic_id == target:
        return Reply(200, encode(wire.Moved(0, [])))
    row = tx.execute("SELECT channel_id FROM topics WHERE id = ?", (target,)).fetchone()
    if row is None:
        raise wire.NoSuchTopic("target topic not found", details={"to_topic_id": target})
    if row[0] != anchor.channel_id:
        raise wire.CrossChannelMove(details={"message_id": message_id, "to_topic_id": target})
    if anchor.topic_id != source:
        raise wire.MessagesMoved(
            details={"message_id": message_id, "expected": source, "current": anchor.topic_id}
        )
    selection, parameters = _selection(tx, anchor, command.mode, order)
    _refuse_too_many(tx, selection, parameters, messages_max)
    selected = f"{selection} ORDER BY {order}"
    event_ids = _append_events(tx, anchor, command, selected, parameters, principal)
    moved = tx.execute(
        f"UPDATE messages SET topic_id = ?, version = version + 1 WHERE {selection}",
        (target, *parameters),
    ).rowcount
    if moved != len(event_ids):
        raise RuntimeError(f"{moved} messages moved, {len(event_ids)} events written")
    tx.execute(
        "UPDATE topics SET updated_at = ?1 WHERE id = ?2 AND updated_at < ?1", (tx.now, target)
    )
    return Reply(200, encode(wire.Moved(moved, event_ids)))


def _selection(
    tx: Tx, anchor: wire.Message, mode: wire.Mode, order: str
) -> tuple[str, list[str | int]]:
    if mode == "all":
        return "topic_id = ?", [anchor.topic_id]
    if mode == "one":
        return "topic_id = ? AND id = ?", [anchor.topic_id, anchor.id]
    first: str | int = anchor.id
    if order != "id":
        (first,) = tx.execute("SELECT rowid FROM messages WHERE id = ?", (anchor.id,)).fetchone()
    return f"topic_id = ? AND {order} >= ?", [anchor.topic_id, first]


def _refuse_too_many(
    tx: Tx, selection: str, parameters: list[str | int], messages_max: int
) -> None:
    count, version = tx.execute(
        f"SELECT count(*), max(version) FROM"
        f" (SELECT version FROM messages WHERE {selection} LIMIT ?)",
        (*parameters, messages_max + 1),
    ).fetchone()
    if count > messages_max:
        raise wire.TooManyToMove(details={"limit": messages_max})
    if count and version >= wire.VERSION_MAX:
        raise wire.VersionsUsedUp


def _append_events(
    tx: Tx,
    anchor: wire.Message,
    command: wire.MoveMessage,
    selection: str,
    parameters: list[str | int],
    principal: str | None,
) -> list[int]:
    """Write an event for each selected message, in order; returns the event ids."""
    target, mode = command.to_topic_id, command.mode
    before = tx.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
    tx.execute(
        "INSERT INTO events (ts, name, scope_channel_id, scope_topic_id, scope_topic_id2,"
        " entity_type, entity_id, data_json)"
        f" SELECT ?, ?, channel_id, topic_id, ?, 'message', id, {DATA}"
        f" FROM messages WHERE {selection}",
        (tx.now, MOVED, target, target, mode, principal, *parameters),
    )
    rows = tx.execute(
        "SELECT event_id, data_json FROM events WHERE event_id > ? ORDER BY event_id",
        (before[0] if before else 0,),
    ).fetchall()
    for number, data in rows:
        tx.publish(
            CommittedEvent(number, tx.now, MOVED, anchor.channel_id, anchor.topic_id, target, data)
        )
    return [number for number, _ in rows]
