"""Defines what audit reads beside the log, what audit compares, and what audit promises."""

from spark import schemas

NAME = "audit-1"
OUTPUT = schemas.tables(NAME)
SNAPSHOT = schemas.tables("snapshot-1")

# Noun → (the snapshot's table, its key, column of the log's state → kind of difference).
# Both sides get the same column names; `_text` and `_hash` are made by the transforms.
COMPARED = {
    "message": ("messages", {
        "version": "version", "content_hash": "content", "topic_id": "topic",
        "channel_id": "scope", "sender": "sender", "tombstone": "tombstone",
        "created_at": "created_at", "edited_at": "edited_at",
    }),
    "topic": ("topics", {"title": "title", "channel_id": "scope", "created_at": "created_at"}),
    "channel": ("channels", {
        "name": "name", "description": "description", "created_at": "created_at",
    }),
    "attachment": ("topic_attachments", {
        "topic_id": "topic", "kind": "kind", "key": "key", "value": "value",
        "dedupe_key": "dedupe_key", "source_message_id": "source", "created_at": "created_at",
    }),
    "enrichment": ("enrichments", {"count": "count", "created_at": "created_at"}),
}  # fmt: skip
OPTIONAL = {("enrichment", "created_at")}  # not compared where the log does not have it
CREATED_SECONDS_MAX = 1.0  # from a creation to its event: programs may read the clock twice
GAPS_MAX = 1000  # gaps of one segment in the differences
