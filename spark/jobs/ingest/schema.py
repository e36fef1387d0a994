"""Defines what ingest reads and promises, and the payloads for known events."""

from spark import schemas
from spark.jobs.ingest.plan import SCHEMA

NAME = SCHEMA
INPUT = schemas.segments()
OUTPUT = schemas.tables(NAME)
PARTITIONS = schemas.partitions(NAME)

TOMBSTONE = "[deleted]"
MESSAGES = {
    "message.created": "created",
    "message.edited": "edited",
    "message.moved_topic": "moved",
    "message.deleted": "deleted",
}
OTHERS = (
    "channel.created",
    "topic.created",
    "topic.renamed",
    "topic.attachment_added",
    "message.enriched",
)
# Known events that no table has: their state is in the hub's store alone.
WITHOUT_TABLE = (
    "entry.acknowledged",
    "entry.declined",
    "entry.overdue",
    "topic.resolved",
    "topic.reopened",
    "topic.handoff",
    "message.pinned",
    "message.unpinned",
    "pause.began",
    "pause.ended",
    "ceiling.warned",
)
WITH_TABLE = (*MESSAGES, *OTHERS)
EVENT_NAMES = (*WITH_TABLE, *WITHOUT_TABLE)

# A creation has its noun, and other events have what they say of the message. A time is text here,
# for the JSON reader is slow at times.
MESSAGE_PAYLOAD = (
    "message struct<id: string, topic_id: string, channel_id: string, sender: string,"
    " content_raw: string, version: bigint, created_at: string, principal: string>,"
    " message_id string, version bigint, new_content string, old_topic_id string,"
    " new_topic_id string, channel_id string, mode string, deleted_by string, principal string"
)
# Each event has the same fields. The first source is the payload `p` of a creation, the second one
# that of any other event.
MESSAGE_FIELDS = {
    "id": ("p.message.id", "p.message_id"),
    "version": ("p.message.version", "p.version"),
    "channel_id": ("p.message.channel_id", "p.channel_id"),
    "topic_id": ("p.message.topic_id", "p.new_topic_id"),
    "from_topic_id": ("null", "p.old_topic_id"),
    "move_mode": ("null", "p.mode"),
    "sender": ("p.message.sender", "null"),
    "content_raw": ("p.message.content_raw", "p.new_content"),
    "created_text": ("p.message.created_at", "null"),
    "deleted_by": ("null", "p.deleted_by"),
    "principal": ("p.message.principal", "p.principal"),
}
# Columns with fields that `creations.cut` cuts from a creation's text.
CUT = {
    "id": "entity_id",
    "version": "1L",
    "channel_id": "scope_channel_id",
    "topic_id": "scope_topic_id",
    "sender": "cut_sender",
    "content_raw": "cut_content",
    "created_text": "cut_created",
    "principal": "cut_principal",
}
OTHER_PAYLOAD = (
    "channel map<string,string>, topic map<string,string>, attachment map<string,string>,"
    " topic_id string, new_title string, message_id string, principal string, plugin string,"
    " version bigint,"
    " enrichments array<struct<kind: string, span: struct<start: bigint, end: bigint>,"
    " data: string>>"
)

# Fields of the payload, and of the noun inside it, that the tables have columns for or drop
# knowingly (an old value stands in the row before).
NOUNS = {
    "message.created": "message",
    "channel.created": "channel",
    "topic.created": "topic",
    "topic.attachment_added": "attachment",
}
FIELDS = {
    "message.created": ("message", "principal", "entries"),
    "message.edited": ("message_id", "old_content", "new_content", "version", "principal"),
    "message.moved_topic": (
        "message_id", "old_topic_id", "new_topic_id", "channel_id", "mode", "version", "principal",
    ),
    "message.deleted": ("message_id", "deleted_by", "version", "principal"),
    "channel.created": ("channel", "principal"),
    "topic.created": ("topic", "principal"),
    "topic.renamed": ("topic_id", "old_title", "new_title", "principal"),
    "topic.attachment_added": ("attachment", "principal"),
    "message.enriched": ("message_id", "plugin", "version", "enrichments", "principal"),
}  # fmt: skip
NOUN_FIELDS = {
    "message": (
        "id", "topic_id", "channel_id", "sender", "content_raw", "version", "created_at",
        "edited_at", "deleted_at", "deleted_by", "principal",
    ),
    "channel": ("id", "name", "description", "created_at"),
    "topic": ("id", "channel_id", "title", "created_at", "updated_at"),
    "attachment": (
        "id", "topic_id", "kind", "key", "value_json", "dedupe_key", "source_message_id",
        "created_at",
    ),
}  # fmt: skip
