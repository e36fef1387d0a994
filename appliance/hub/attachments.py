"""Validates, deduplicates, adds and lists topic attachments.

Attachments never change. Adding an equal one again (ADR-0007: same topic, kind, key and dedupe key)
returns the existing one and writes no event.
"""

import hashlib
import re
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from appliance.hub import events, wire
from appliance.hub.columns import ATTACHMENT
from appliance.hub.events import encode
from appliance.hub.text import check_text
from appliance.kernel.batch import Tx
from appliance.kernel.errors import Invalid, PayloadTooLarge
from appliance.kernel.idempotency import Reply

VALUE_DEPTH_MAX = 32
INTEGERS = range(-(2**63), 2**63)  # the range for SQLite, Parquet and most JSON readers
SCHEMES = ("http", "https", "file")
_URL = re.compile(r"[A-Za-z]+://[^\s\x00-\x20\x7f-\x9f\\]+")
_sorted = msgspec.json.Encoder(order="sorted").encode


# -- what may be attached --------------------------------------------------------------------


def check(command: wire.AddAttachment) -> None:
    """Raise for values that are too large or too deep, and for addresses that aren't allowed."""
    size = len(encode(command.value_json))
    if size > wire.VALUE_BYTES_MAX:
        raise PayloadTooLarge(
            f"value_json has more than {wire.VALUE_BYTES_MAX} bytes",
            details={"field": "value_json", "bytes": size, "limit": wire.VALUE_BYTES_MAX},
            hint="attach a link to it instead",
        )
    check_value(command.value_json)
    if command.kind == "url" and not isinstance(command.value_json.get("url"), str):
        raise wire.BadUrl('value_json for a "url" attachment needs a string "url"')


def check_value(value: Any, depth: int = VALUE_DEPTH_MAX) -> None:
    """Check every text and every address in a value with at most `depth` levels."""
    if depth == 0:
        raise Invalid(
            f"value_json is nested deeper than {VALUE_DEPTH_MAX}",
            details={"field": "value_json"},
            hint="use fewer levels, or send it as a string",
        )
    if isinstance(value, dict):
        for name, inner in value.items():
            if name.strip().lower() in ("url", "href") and inner is not None:
                _check_address(name, inner)
            check_text(value_json=name)
            check_value(inner, depth - 1)
    elif isinstance(value, list):
        for inner in value:
            check_value(inner, depth - 1)
    elif isinstance(value, str):
        check_text(value_json=value)
    elif isinstance(value, int) and value not in INTEGERS:
        raise Invalid(
            "value_json contains an integer that needs more than 64 bits",
            details={"field": "value_json"},
            hint="send it as a string",
        )


def _check_address(name: str, address: Any) -> None:
    details = {"field": name[:100]}
    if not isinstance(address, str):
        raise wire.BadUrl("an address must be a string", details=details)
    # Browsers remove blanks and control characters before parsing the scheme.
    if not _URL.fullmatch(address):
        raise wire.BadUrl(details=details)
    try:
        parts = urlsplit(address)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        raise wire.BadUrl("the address is not valid", details=details) from None
    if parts.scheme not in SCHEMES or (parts.scheme != "file" and not host):
        raise wire.BadUrl(details=details)


def dedupe_key(value: dict[str, Any]) -> str:
    """Return one key for equal JSON values in any notation.

    As in RFC 8785, key order and number and string notation don't matter. The bytes differ from RFC
    8785, since only the hub computes this key; integers beyond 2⁵³ stay exact.
    """
    return "sha256:" + hashlib.sha256(_sorted(_plain(value))).hexdigest()


def _plain(value: Any) -> Any:
    """Write whole numbers as integers: 1.0 and 1 are equal in JSON."""
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
    """Add an attachment. `key`: the dedupe key, given by the caller or computed."""
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
    """Require a message in that channel, in any topic. A message in another channel counts as
    missing, so that callers can't probe which messages exist there."""
    row = tx.execute(
        "SELECT 1 FROM messages WHERE id = ? AND channel_id = ?", (message_id, channel_id)
    ).fetchone()
    if row is None:
        raise wire.NoSuchMessage(
            "message not found in the topic's channel", details={"source_message_id": message_id}
        )


def attachment_of(row: Any) -> wire.Attachment:
    """Return the attachment for a response; the stored JSON is not parsed again."""
    id_, topic_id, kind, key, value, dedupe, source, created_at = row
    value_json = cast(dict[str, Any], msgspec.Raw(value.encode()))
    return wire.Attachment(id_, topic_id, kind, key, value_json, dedupe, source, created_at)
