"""Attachments of topics: what may be one, when two are the same, adding and listing them.

An attachment is never changed. The same one again (ADR-0007: same topic, kind, key and
dedupe key) answers with the one that is there, and nobody is told a second time.
"""

import hashlib
import re
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from appliance.hub import events, wire
from appliance.hub.events import encode
from appliance.hub.text import check_text
from appliance.kernel.batch import Tx
from appliance.kernel.errors import Invalid, PayloadTooLarge
from appliance.kernel.idempotency import Reply

ATTACHMENT = "id, topic_id, kind, key, value_json, dedupe_key, source_message_id, created_at"
VALUE_DEPTH_MAX = 32
INTEGERS = range(-(2**63), 2**63)  # what SQLite, Parquet and most readers can hold
SCHEMES = ("http", "https", "file")
_URL = re.compile(r"[A-Za-z]+://[^\s\x00-\x20\x7f-\x9f\\]+")
_sorted = msgspec.json.Encoder(order="sorted").encode


# -- what may be attached --------------------------------------------------------------------


def check(command: wire.AddAttachment) -> None:
    """Refuses what is too big, too deep, or leads to where no address should lead."""
    check_value(command.value_json)
    size = len(encode(command.value_json))
    if size > wire.VALUE_BYTES_MAX:
        raise PayloadTooLarge(
            f"value_json has more than {wire.VALUE_BYTES_MAX} bytes",
            details={"field": "value_json", "bytes": size, "limit": wire.VALUE_BYTES_MAX},
            hint="attach a link to it instead",
        )
    if command.kind == "url" and not isinstance(command.value_json.get("url"), str):
        raise wire.BadUrl('an attachment of kind "url" needs a text "url" in its value_json')


def check_value(value: dict[str, Any]) -> None:
    """Looks at every text below, and at what is called an address, whoever may follow it."""
    _check_value(value, VALUE_DEPTH_MAX)


def _check_value(value: Any, depth: int) -> None:
    if depth == 0:
        raise Invalid(
            f"value_json is nested deeper than {VALUE_DEPTH_MAX}",
            details={"field": "value_json"},
            hint="write it flatter, or as a text",
        )
    if isinstance(value, dict):
        for name, inner in value.items():
            if name.strip().lower() in ("url", "href") and inner is not None:
                _check_address(name, inner)
            check_text(value_json=name)
            _check_value(inner, depth - 1)
    elif isinstance(value, list):
        for inner in value:
            _check_value(inner, depth - 1)
    elif isinstance(value, str):
        check_text(value_json=value)
    elif isinstance(value, int) and value not in INTEGERS:
        raise Invalid(
            "value_json: integers must fit into 64 bits",
            details={"field": "value_json"},
            hint="send it as a text",
        )


def _check_address(name: str, address: Any) -> None:
    details = {"field": name[:100]}
    if not isinstance(address, str):
        raise wire.BadUrl("an address is a text", details=details)
    # Browsers drop blanks and control characters before they look at the scheme.
    if not _URL.fullmatch(address):
        raise wire.BadUrl(details=details)
    try:
        parts = urlsplit(address)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        raise wire.BadUrl("that is not an address", details=details) from None
    if parts.scheme not in SCHEMES or (parts.scheme != "file" and not host):
        raise wire.BadUrl(details=details)


def dedupe_key(value: dict[str, Any]) -> str:
    """The same for values that are the same JSON, however they were written.

    Equal means what it does in RFC 8785: neither the order of keys nor the spelling of a
    number or a text counts. (Its own bytes are not needed: nobody else computes this key.
    Integers beyond 2⁵³, which it forbids, stay exact here.)
    """
    return "sha256:" + hashlib.sha256(_sorted(_plain(value))).hexdigest()


def _plain(value: Any) -> Any:
    """Numbers that are whole written as such: 1.0 and 1 are one number in JSON."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


# -- adding and listing ------------------------------------------------------------------------


def add(
    tx: Tx, topic_id: str, command: wire.AddAttachment, key: str, principal: str | None
) -> Reply:
    """`key` is the dedupe key, given or computed."""
    topic = tx.execute("SELECT channel_id FROM topics WHERE id = ?", (topic_id,)).fetchone()
    if topic is None:
        raise wire.NoSuchTopic(details={"topic_id": topic_id})
    source = command.source_message_id
    if source is not None:
        _require_message(tx, source, topic[0])
    row = tx.execute(
        f"SELECT {ATTACHMENT} FROM topic_attachments WHERE topic_id = ? AND kind = ?"
        " AND COALESCE(key, '') = ? AND dedupe_key = ?",
        (topic_id, command.kind, command.key or "", key),
    ).fetchone()
    if row is not None:
        return Reply(200, encode(wire.AttachmentAdded(attachment_of(row), None, True)))
    value = encode(command.value_json).decode()
    new = (tx.new_id("att_"), topic_id, command.kind, command.key, value, key, source, tx.now)
    tx.execute(f"INSERT INTO topic_attachments ({ATTACHMENT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", new)
    attachment = attachment_of(new)
    event_id = events.append(
        tx, "topic.attachment_added", ("attachment", attachment.id),
        encode(wire.AttachmentData(attachment, principal)),
        channel_id=topic[0], topic_id=topic_id,
    )  # fmt: skip
    return Reply(201, encode(wire.AttachmentAdded(attachment, event_id)))


def _require_message(tx: Tx, message_id: str, channel_id: str) -> None:
    """A message of that channel: it may have moved to another topic, but never leaves its channel.
    One of another channel is not found, so that nobody learns which messages exist there."""
    found = tx.execute(
        "SELECT 1 FROM messages WHERE id = ? AND channel_id = ?", (message_id, channel_id)
    ).fetchone()
    if found is None:
        raise wire.NoSuchMessage(
            "message not found in the topic's channel", details={"source_message_id": message_id}
        )


def attachment_of(row: Any) -> wire.Attachment:
    """As it goes out: the stored JSON as it is, never parsed again."""
    id_, topic_id, kind, key, value, dedupe, source, created_at = row
    value_json = cast(dict[str, Any], msgspec.Raw(value.encode()))
    return wire.Attachment(id_, topic_id, kind, key, value_json, dedupe, source, created_at)
