"""Defines what an erasure reads and leaves, and the silver columns with content."""

from spark.jobs.erase.payload import MARKER, OBJECT_JSON

CERTIFICATE = "erasure-certificate-1"
SELECTED = "kind string, id string"
MESSAGE, ATTACHMENT = "message", "attachment"  # kinds of what is selected
REWRITTEN = "file_path string, before string, after string, bytes bigint, changed bigint"
SNAPSHOT_TABLES = ("messages", "topic_attachments", "enrichments")
SNAPSHOT_IDS = "id string, message_id string, source_message_id string"
# Tables of silver: the column with the id of what may be selected.
IDS = {
    "messages": "message_id",
    "attachments": "attachment_id",
    "enrichments": "message_id",
    "unknown_events": "entity_id",
    "quarantine": "entity_id",
}
EVENT_TABLES = ("unknown_events", "quarantine")  # with events as they were received
ERASED = {
    "content_raw": MARKER,
    "value_json": OBJECT_JSON,
    "key": MARKER,
    "dedupe_key": MARKER,
    "data_json": OBJECT_JSON,
}
TOMBSTONE = "[deleted]"
# Results of jobs that are made of contents, and can be made again.
DERIVED = ("audit", "digest")
