"""What an erasure reads and leaves, and the columns of silver with content."""

from spark.jobs.erase.payload import MARKER, OBJECT_JSON

CERTIFICATE = "erasure-certificate-1"
SELECTED = "kind string not null, id string not null"
MESSAGE, ATTACHMENT = "message", "attachment"  # kinds of what is selected
STAGED = "file string, changed bigint, bytes bigint, sha256 string"
# Tables of silver: the columns with the id of what may be selected.
IDS = {
    "messages": ("message_id",),
    "attachments": ("attachment_id", "source_message_id"),
    "enrichments": ("message_id",),
    "unknown_events": ("entity_id",),
    "quarantine": ("entity_id",),
}
ERASED = {
    "content_raw": MARKER,
    "value_json": OBJECT_JSON,
    "key": MARKER,
    "dedupe_key": MARKER,
}
TOMBSTONE = "[deleted]"
# Results of jobs that are made of contents, and can be made again.
DERIVED = ("audit", "digest")
CONTENTLESS = ("delivery",)  # results of jobs without contents and names of senders
LISTED_MAX = 1000  # entries of a list in the certificate
