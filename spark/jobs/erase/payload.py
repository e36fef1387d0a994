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
OBJECTS = ("value_json", "data")  # fields whose content is an object
NULLABLE = ("key", "dedupe_key", "old_content", "new_content", "content_raw", "data")
KEEP = "keep"  # text, a number, true, false or null


def _keep_all(*fields: str) -> dict[str, Any]:
    return dict.fromkeys(fields, KEEP)


# What stays of a payload: fields, also those of objects and of lists in it.
KEPT: dict[str, dict[str, Any]] = {
    "message.created": {
        "principal": KEEP,
        "message": _keep_all(
            "id", "topic_id", "channel_id", SENDER, "version", "created_at", "edited_at",
            "deleted_at", *PEOPLE,
        ),
    },
    "message.edited": _keep_all("message_id", "version", "principal"),
    "message.moved_topic": _keep_all(
        "message_id", "old_topic_id", "new_topic_id", "channel_id", "mode", "version", "principal",
    ),
    "message.deleted": _keep_all("message_id", "version", *PEOPLE),
    "message.enriched": {
        **_keep_all("message_id", "plugin", "version", "principal"),
        "enrichments": [{"kind": KEEP, "span": {"start": KEEP, "end": KEEP}}],
    },
    "topic.attachment_added": {
        "principal": KEEP,
        "attachment": _keep_all("id", "topic_id", "kind", "source_message_id", "created_at"),
    },
}  # fmt: skip


def erase(name: str, data_json: str, senders: Collection[str], becomes: str | None) -> str:
    """Return the payload without content. Anything but a JSON object becomes the marker."""
    try:
        payload = json.loads(data_json)
    except (TypeError, ValueError, RecursionError):
        payload = None
    if not isinstance(payload, dict):
        return MARKER
    if name not in KEPT:
        return OBJECT_JSON
    made = _keep("", payload, KEPT[name], senders, becomes)
    if made == payload:
        return data_json
    return json.dumps(made, ensure_ascii=False, separators=(",", ":"))


def _keep(
    field: str, value: Any, kept: Any, senders: Collection[str], becomes: str | None
) -> Any:  # fmt: skip
    if isinstance(kept, dict) and isinstance(value, dict):
        return {
            inner: _keep(inner, held, kept.get(inner), senders, becomes)
            for inner, held in value.items()
        }
    if isinstance(kept, list) and isinstance(value, list):
        return [_keep(field, item, kept[0], senders, becomes) for item in value]
    if value is None and (kept is KEEP or field in NULLABLE):
        return None
    if kept is not KEEP or isinstance(value, dict | list):
        return OBJECT if field in OBJECTS else MARKER
    is_person = field == SENDER or (field in PEOPLE and value in senders)
    return becomes if is_person and becomes is not None else value
