"""Takes the content out of one event. Pure, standard library only: it runs on executors.

Only fields without content are kept, so the content of a field that this version does not know is
erased too. Erasing twice changes nothing more.
"""

import json
from collections.abc import Collection
from typing import Any

MARKER = "[erased]"
OBJECT = {"erased": MARKER}
OBJECT_JSON = json.dumps(OBJECT, separators=(",", ":"))
SENDER = "sender"
PEOPLE = ("deleted_by", "principal")  # replaced if they are a sender of the order
_MESSAGE = (
    "id", "topic_id", "channel_id", SENDER, "version", "created_at", "edited_at", "deleted_at",
    *PEOPLE,
)  # fmt: skip
_ATTACHMENT = ("id", "topic_id", "kind", "source_message_id", "created_at")
# The fields of a payload that stay, and those of the noun in it.
KEPT: dict[str, tuple[str, ...]] = {
    "message.created": ("principal",),
    "message.edited": ("message_id", "version", "principal"),
    "message.moved_topic": (
        "message_id", "old_topic_id", "new_topic_id", "channel_id", "mode", "version", "principal",
    ),
    "message.deleted": ("message_id", "version", *PEOPLE),
    "message.enriched": ("message_id", "plugin", "version", "principal"),
    "topic.attachment_added": ("principal",),
}  # fmt: skip
NOUNS = {
    "message.created": ("message", _MESSAGE),
    "topic.attachment_added": ("attachment", _ATTACHMENT),
}


def erase(name: str, data_json: str, senders: Collection[str], becomes: str | None) -> str:
    """The payload without content. Other texts than JSON objects become the marker."""
    try:
        payload = json.loads(data_json)
    except (TypeError, ValueError, RecursionError):
        payload = None
    if not isinstance(payload, dict):
        return MARKER
    if name not in KEPT:
        return OBJECT_JSON
    kept, (noun, noun_kept) = KEPT[name], NOUNS.get(name, ("", ()))
    made: dict[str, Any] = {}
    for field, value in payload.items():
        if field == noun and isinstance(value, dict):
            made[field] = {
                inner: _field(inner, held, noun_kept, senders, becomes)
                for inner, held in value.items()
            }
        elif field == "enrichments" and name == "message.enriched" and isinstance(value, list):
            made[field] = [_enrichment(item) for item in value]
        else:
            made[field] = _field(field, value, kept, senders, becomes)
    if made == payload:
        return data_json
    return json.dumps(made, ensure_ascii=False, separators=(",", ":"))


def _field(
    field: str, value: Any, kept: Collection[str], senders: Collection[str], becomes: str | None
) -> Any:
    if field not in kept:
        if field == "value_json":
            return OBJECT
        optional = field in ("key", "dedupe_key", "old_content", "new_content", "content_raw")
        return None if value is None and optional else MARKER
    if isinstance(value, dict | list):
        return MARKER
    if becomes is None or value is None:
        return value
    if field == SENDER or (field in PEOPLE and value in senders):
        return becomes
    return value


def _enrichment(item: Any) -> Any:
    if not isinstance(item, dict):
        return MARKER
    made: dict[str, Any] = {}
    for field, value in item.items():
        if field == "kind" and isinstance(value, str):
            made[field] = value
        elif field == "span" and isinstance(value, dict):
            made[field] = {side: value[side] for side in ("start", "end") if side in value}
        elif field == "data":
            made[field] = None if value is None else OBJECT
        else:
            made[field] = MARKER
    return made
