"""What ingest reads and what it promises, and the payloads of the events that it knows."""

from spark import schemas
from spark.jobs.ingest.plan import SCHEMA

NAME = SCHEMA
INPUT = schemas.segments()
OUTPUT = schemas.tables(NAME)
PARTITIONS = schemas.partitions(NAME)
RANGES = schemas.ranges(NAME)
BUCKETS = 16  # of topics

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
EVENT_NAMES = (*MESSAGES, *OTHERS)

# All that is said of a message after its creation.
CHANGED_PAYLOAD = (
    "message_id string, version bigint, new_content string, old_topic_id string,"
    " new_topic_id string, channel_id string, mode string, deleted_by string, principal string"
)
# A time is text here, for the JSON reader is slow at times.
CREATED_PAYLOAD = (
    "message struct<id: string, topic_id: string, channel_id: string, sender: string,"
    " content_raw: string, version: bigint, created_at: string, principal: string>"
)
# The same fields for every kind of event.
MESSAGE_FIELDS = """
    named_struct(
        'id', coalesce(m.message.id, j.message_id),
        'version', coalesce(m.message.version, j.version),
        'channel_id', coalesce(m.message.channel_id, j.channel_id),
        'topic_id', coalesce(m.message.topic_id, j.new_topic_id),
        'from_topic_id', j.old_topic_id,
        'move_mode', j.mode,
        'sender', m.message.sender,
        'content_raw', coalesce(m.message.content_raw, j.new_content),
        'created_at', m.message.created_at,
        'deleted_by', j.deleted_by,
        'principal', coalesce(m.message.principal, j.principal)
    )"""
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
    "message.created": ("message", "principal"),
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
