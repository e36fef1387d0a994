"""Reads lines of JSON as messages to import.

    {"channel": "general", "topic": "Builds", "sender": "ci", "content": "passed"}

With the optional `id` a message is recognized in any file and line. `ts` is accepted but not
used, because the hub sets the time of a message. Other fields are ignored.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from appliance.sdk.importer import BadEntry, ImportItem, item_key

LINE_BYTES_MAX = 1_000_000


class Fields(msgspec.Struct, frozen=True):
    """The names of the fields, and the values for lines without them."""

    channel_field: str = "channel"
    topic_field: str = "topic"
    sender_field: str = "sender"
    content_field: str = "content"
    channel: str | None = None
    topic: str | None = None
    sender: str | None = None


def read_jsonl(file: BinaryIO, source: str, fields: Fields) -> Iterator[ImportItem | BadEntry]:
    """The messages of `file`. `source` is its name: equal lines of two files are two messages."""
    number = 0
    while line := file.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(line) > LINE_BYTES_MAX:
            _skip_rest(file, line)
            yield BadEntry(number, f"line longer than {LINE_BYTES_MAX:,} bytes")
            continue
        text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        text = text.strip()
        if text:
            yield _item(text, number, source, fields)


def _skip_rest(file: BinaryIO, line: bytes) -> None:
    while line and not line.endswith(b"\n"):
        line = file.readline(LINE_BYTES_MAX)


def _item(text: bytes, number: int, source: str, fields: Fields) -> ImportItem | BadEntry:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return BadEntry(number, f"not JSON: {error}")
    if not isinstance(value, dict):
        return BadEntry(number, "not a JSON object")
    try:
        channel = _text(value, fields.channel_field, fields.channel, "--channel")
        topic = _text(value, fields.topic_field, fields.topic, "--topic")
        sender = _text(value, fields.sender_field, fields.sender, "--sender")
        content = _text(value, fields.content_field, value.get("content_raw"), None)
    except ValueError as error:
        return BadEntry(number, str(error))
    own = value.get("id")
    if own is None:
        key = item_key("jsonl", source, str(number), text)
    elif isinstance(own, str | int) and own != "":
        key = item_key("jsonl-id", channel, topic, str(own))
    else:
        return BadEntry(number, "field 'id' must be a string or an integer")
    return ImportItem(number, channel, topic, sender, content, key)


def _text(value: dict[str, Any], field: str, default: Any, flag: str | None) -> str:
    text = value.get(field, default)
    if text is None:
        hint = f", and no {flag} was given" if flag else ""
        raise ValueError(f"field '{field}' is missing{hint}")
    if not isinstance(text, str):
        raise ValueError(f"field '{field}' must be a string")
    if not text and flag is not None:
        raise ValueError(f"field '{field}' is empty")
    return text
