"""The mutations, inside their transactions: check, change the row, write the event.

Every function takes a Tx and plain values and returns the JSON body of the response, so that
the bytes stored for an idempotency key are the bytes that were sent.
"""

import sqlite3

from msgspec import structs

from appliance.hub import addressing, events, indexing, pausing, queries, receipts, wire
from appliance.hub.addressing import Addressing, StoredMessage
from appliance.hub.columns import CHANNEL, TOPIC
from appliance.hub.events import encode
from appliance.hub.named_files import expire_named
from appliance.kernel.auth import check_sender
from appliance.kernel.batch import Tx
from appliance.kernel.idempotency import Reply

_CHANNEL_NAMED = "SELECT id FROM channels WHERE name = ?"
_TOPIC_FOR_MESSAGE = (
    "SELECT t.channel_id, EXISTS (SELECT 1 FROM x_follows WHERE topic_id = t.id), h.sender,"
    " EXISTS (SELECT 1 FROM x_pauses WHERE kind = 'topic' AND subject = t.id)"
    " FROM topics AS t LEFT JOIN x_hops AS h ON h.topic_id = t.id WHERE t.id = ?"
)
_TOPIC_TITLED = "SELECT id FROM topics WHERE channel_id = ? AND title = ?"

# -- channels and topics ---------------------------------------------------------------


def create_channel(tx: Tx, command: wire.CreateChannel, principal: str | None) -> Reply:
    channel = wire.Channel(tx.new_id("ch_"), command.name, command.description, tx.now)
    try:
        tx.execute(
            f"INSERT INTO channels ({CHANNEL}) VALUES (?, ?, ?, ?)",
            (channel.id, channel.name, channel.description, channel.created_at),
        )
    except sqlite3.IntegrityError:
        row = tx.execute(_CHANNEL_NAMED, (command.name,)).fetchone()
        if row is None:
            raise
        raise wire.NameTaken(
            "a channel with that name exists", details={"channel_id": row[0]}
        ) from None
    event_id = events.append(
        tx, "channel.created", ("channel", channel.id),
        encode(wire.ChannelData(channel, principal)),
        channel_id=channel.id,
    )  # fmt: skip
    return Reply(201, encode(wire.ChannelCreated(channel, event_id)))


def create_topic(tx: Tx, command: wire.CreateTopic, principal: str | None) -> Reply:
    if not tx.execute("SELECT 1 FROM channels WHERE id = ?", (command.channel_id,)).fetchone():
        raise wire.NoSuchChannel(details={"channel_id": command.channel_id})
    topic = wire.Topic(tx.new_id("topic_"), command.channel_id, command.title, tx.now, tx.now)
    _refuse_taken_title(tx, command.channel_id, command.title)
    tx.execute(
        f"INSERT INTO topics ({TOPIC}) VALUES (?, ?, ?, ?, ?)",
        (topic.id, topic.channel_id, topic.title, topic.created_at, topic.updated_at),
    )
    event_id = events.append(
        tx, "topic.created", ("topic", topic.id), encode(wire.TopicData(topic, principal)),
        channel_id=topic.channel_id, topic_id=topic.id,
    )  # fmt: skip
    return Reply(201, encode(wire.TopicChanged(topic, event_id)))


def find_or_create_topic(tx: Tx, channel: str, title: str, principal: str | None) -> str:
    """Return the topic's id. A missing topic or channel is created."""
    channel_id = find_or_create_channel(tx, channel, principal)
    if tx.execute(_TOPIC_TITLED, (channel_id, title)).fetchone() is None:
        create_topic(tx, wire.CreateTopic(channel_id, title), principal)
    return str(tx.execute(_TOPIC_TITLED, (channel_id, title)).fetchone()[0])


def find_or_create_channel(tx: Tx, name: str, principal: str | None) -> str:
    """Return the channel's id. A missing channel is created."""
    if tx.execute(_CHANNEL_NAMED, (name,)).fetchone() is None:
        create_channel(tx, wire.CreateChannel(name), principal)
    return str(tx.execute(_CHANNEL_NAMED, (name,)).fetchone()[0])


def rename_topic(tx: Tx, topic_id: str, title: str, principal: str | None) -> Reply:
    row = tx.execute(f"SELECT {TOPIC} FROM topics WHERE id = ?", (topic_id,)).fetchone()
    if row is None:
        raise wire.NoSuchTopic(details={"topic_id": topic_id})
    old = wire.Topic(*row)
    if title != old.title:
        _refuse_taken_title(tx, old.channel_id, title)
    topic = wire.Topic(old.id, old.channel_id, title, old.created_at, tx.now)
    tx.execute("UPDATE topics SET title = ?, updated_at = ? WHERE id = ?", (title, tx.now, old.id))
    event_id = events.append(
        tx, "topic.renamed", ("topic", topic.id),
        encode(wire.TopicRenamed(topic.id, old.title, title, principal)),
        channel_id=topic.channel_id, topic_id=topic.id,
    )  # fmt: skip
    return Reply(200, encode(wire.TopicChanged(topic, event_id)))


def _refuse_taken_title(tx: Tx, channel_id: str, title: str) -> None:
    row = tx.execute(_TOPIC_TITLED, (channel_id, title)).fetchone()
    if row is not None:
        raise wire.NameTaken(
            "a topic with that title exists in this channel", details={"topic_id": row[0]}
        )


# -- messages ----------------------------------------------------------------------------


def create_message(
    tx: Tx,
    topic_id: str,
    sender: str,
    content: str,
    principal: str | None,
    traceparent: str | None = None,
    addressed: Addressing | None = None,
    is_agent: bool | None = None,
) -> Reply:
    """Store a message. `is_agent`: whether an agent wrote the message; None: the appliance. Raises
    NoSuchTopic, or Paused for an agent's message."""
    row = tx.execute(_TOPIC_FOR_MESSAGE, (topic_id,)).fetchone()
    if row is None:
        raise wire.NoSuchTopic(details={"topic_id": topic_id})
    channel_id, has_followers, last_agent, has_pause = row
    if has_pause and is_agent:
        pausing.refuse_paused(tx, "topic", topic_id)
    now = tx.now
    message_id = tx.new_id("msg_")
    tx.execute(
        "INSERT INTO messages (id, topic_id, channel_id, sender, content_raw, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (message_id, topic_id, channel_id, sender, content, now),
    )
    if principal is not None:
        tx.execute("INSERT INTO x_message_principals VALUES (?, ?)", (message_id, principal))
    tx.execute(
        "UPDATE topics SET updated_at = ?1 WHERE id = ?2 AND updated_at < ?1", (now, topic_id)
    )
    message = encode(
        wire.Message(
            message_id, topic_id, channel_id, sender, content, 1, now, None, None, None, principal
        )
    )
    more = b',"traceparent":%b' % encode(traceparent) if traceparent else b""
    unknown: list[str] = []
    if addressed is not None or has_followers:
        stored = StoredMessage(message_id, topic_id, channel_id, sender)
        entries, unknown = addressing.deliver(tx, stored, addressed)
        more += addressing.event_part(entries)
    event_id = events.append(
        tx, "message.created", ("message", message_id),
        b'{"message":%b,"principal":%b%b}' % (message, encode(principal), more),
        channel_id=channel_id, topic_id=topic_id,
    )  # fmt: skip
    if is_agent is not None and last_agent != (sender if is_agent else None):
        pausing.count_hop(tx, (channel_id, topic_id), sender, is_agent)
    more = receipts.reply_part(tx, message_id, unknown) if addressed is not None else b""
    return Reply(201, b'{"message":%b,"event_id":%d%b}' % (message, event_id, more))


def edit_message(
    tx: Tx,
    message_id: str,
    command: wire.EditMessage,
    principal: str | None,
    senders: frozenset[str] | None,
) -> Reply:
    """Edit a message. `senders`: the sender names whose messages this caller may edit; None:
    all."""
    old = message_to_change(tx, message_id, command.expected_version)
    check_sender(old.sender, senders)
    if old.deleted_at is not None:
        raise wire.CannotEditDeleted(details={"message_id": message_id})
    version = next_version(old)
    tx.execute(
        "UPDATE messages SET content_raw = ?, edited_at = ?, version = version + 1 WHERE id = ?",
        (command.content_raw, tx.now, message_id),
    )
    message = structs.replace(
        old, content_raw=command.content_raw, version=version, edited_at=tx.now
    )
    indexing.follow_changes(tx)
    edited = wire.MessageEdited(
        message_id, old.content_raw, command.content_raw, version, principal
    )
    return _record_change(tx, "message.edited", message, encode(edited))


def delete_message(
    tx: Tx, message_id: str, command: wire.DeleteMessage, principal: str | None
) -> Reply:
    """Replace a message by a tombstone. Deleting it again changes nothing: `event_id` is null."""
    old = message_to_change(tx, message_id, command.expected_version)
    if old.deleted_at is not None:
        return Reply(200, encode(wire.MessageChanged(old, None)))
    version = next_version(old)
    tx.execute(
        "UPDATE messages SET content_raw = ?, edited_at = ?, deleted_at = ?, deleted_by = ?,"
        " version = version + 1 WHERE id = ?",
        (wire.TOMBSTONE, tx.now, tx.now, command.actor, message_id),
    )
    message = structs.replace(
        old, content_raw=wire.TOMBSTONE, version=version,
        edited_at=tx.now, deleted_at=tx.now, deleted_by=command.actor,
    )  # fmt: skip
    indexing.follow_changes(tx)
    expire_named(tx, message_id, old.content_raw)
    deleted = wire.MessageDeleted(message_id, command.actor, version, principal)
    return _record_change(tx, "message.deleted", message, encode(deleted))


def message_to_change(tx: Tx, message_id: str, expected_version: int | None) -> wire.Message:
    """Return the current message. Raises VersionConflict if its version is not
    `expected_version`."""
    message = queries.message(tx, message_id)
    if expected_version is not None and expected_version != message.version:
        raise wire.VersionConflict(
            details={
                "message_id": message_id,
                "expected": expected_version,
                "current": message.version,
            },
            extra={"current_version": message.version},
        )
    return message


def next_version(message: wire.Message) -> int:
    if message.version >= wire.VERSION_MAX:  # above, SQLite would switch to floating point
        raise wire.VersionsUsedUp(details={"message_id": message.id})
    return message.version + 1


def _record_change(tx: Tx, name: str, message: wire.Message, data: bytes) -> Reply:
    event_id = events.append(
        tx, name, ("message", message.id), data,
        channel_id=message.channel_id, topic_id=message.topic_id,
    )  # fmt: skip
    return Reply(200, encode(wire.MessageChanged(message, event_id)))
