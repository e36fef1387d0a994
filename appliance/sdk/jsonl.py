"""Lines of JSON as messages to import.

    {"channel": "general", "topic": "Builds", "sender": "ci", "content": "passed"}

`id` may be added: then the message is known by it, in whatever file and line it stands.
`ts` is accepted and not kept, for the hub dates messages itself. Other fields are ignored.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from appliance.sdk.importer import Bad, Item, item_key

LINE_BYTES_MAX = 1_000_000


class Fields(msgspec.Struct, frozen=True):
    """Which field of a line holds what, and what holds for lines without it."""

    channel_field: str = "channel"
    topic_field: str = "topic"
    sender_field: str = "sender"
    content_field: str = "content"
    channel: str | None = None
    topic: str | None = None
    sender: str | None = None


def read_jsonl(file: BinaryIO, source: str, fields: Fields) -> Iterator[Item | Bad]:
    """Messages of `file`; `source` names it, so that equal lines of two files stay two."""
    place = 0
    while line := file.readline(LINE_BYTES_MAX + 1):
        place += 1
        if len(line) > LINE_BYTES_MAX:
            _skip_rest(file, line)
            yield Bad(place, f"line longer than {LINE_BYTES_MAX:,} bytes")
            continue
        text = line.removeprefix(b"\xef\xbb\xbf") if place == 1 else line
        text = text.strip()
        if text:
            yield _item(text, place, source, fields)


def _skip_rest(file: BinaryIO, line: bytes) -> None:
    while line and not line.endswith(b"\n"):
        line = file.readline(LINE_BYTES_MAX)


def _item(text: bytes, place: int, source: str, fields: Fields) -> Item | Bad:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Bad(place, f"not JSON: {error}")
    if not isinstance(value, dict):
        return Bad(place, "not a JSON object")
    try:
        channel = _text(value, fields.channel_field, fields.channel, "--channel")
        topic = _text(value, fields.topic_field, fields.topic, "--topic")
        sender = _text(value, fields.sender_field, fields.sender, "--sender")
        content = _text(value, fields.content_field, value.get("content_raw"), None)
    except ValueError as error:
        return Bad(place, str(error))
    own = value.get("id")
    if own is None:
        key = item_key("jsonl", source, str(place), text)
    elif isinstance(own, str | int) and own != "":
        key = item_key("jsonl-id", channel, topic, str(own))
    else:
        return Bad(place, "field 'id' must be a string or an integer")
    return Item(place, channel, topic, sender, content, key)


def _text(value: dict[str, Any], field: str, default: Any, flag: str | None) -> str:
    found = value.get(field, default)
    if found is None:
        hint = f", and no {flag} was given" if flag else ""
        raise ValueError(f"field '{field}' is missing{hint}")
    if not isinstance(found, str):
        raise ValueError(f"field '{field}' must be a string")
    if not found and flag is not None:
        raise ValueError(f"field '{field}' is empty")
    return found
