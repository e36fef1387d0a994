"""What a plugin says, judged: decoded strictly, and refused whole if any of it is wrong."""

from typing import Any

import msgspec

from appliance.hub import attachments
from appliance.hub import wire as hub_wire
from appliance.hub.events import encode
from appliance.hub.plugins import wire
from appliance.hub.text import check_name, check_text
from appliance.kernel.errors import ApplianceError, Invalid

Added = tuple[hub_wire.AddAttachment, str]  # with its dedupe key

_findings = msgspec.json.Decoder(list[wire.Finding]).decode
_extracts = msgspec.json.Decoder(list[wire.Extract]).decode


class BadOutput(Exception):
    """Why it is refused, as a sentence without anything that the plugin said."""


def findings(raw: msgspec.Raw, content: str, items_max: int) -> list[wire.Finding]:
    """A linkifier's. Raises BadOutput."""
    found: list[wire.Finding] = _decoded(_findings, raw, items_max)
    for finding in found:
        if not finding.span.start < finding.span.end <= len(content):
            raise BadOutput("a span is empty or leaves the message's text")
        _judge(_check_finding, finding)
    return found


def extracts(raw: msgspec.Raw, message_id: str, items_max: int) -> list[Added]:
    """An extractor's, as what a client would post. Raises BadOutput."""
    added = []
    for one in _decoded(_extracts, raw, items_max):
        command = hub_wire.AddAttachment(
            one.kind, one.value_json, one.key or None, one.dedupe_key, message_id
        )
        added.append((command, _judge(_check_extract, command)))
    return added


def _decoded(decode: Any, raw: msgspec.Raw, items_max: int) -> Any:
    try:
        items = decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise BadOutput("it is not of the shape that its type of plugin gives") from None
    if len(items) > items_max:
        raise BadOutput("it holds more items than plugins.items_max")
    return items


def _judge(check: Any, item: Any) -> Any:
    try:
        return check(item)
    except (ApplianceError, RecursionError, UnicodeError):
        raise BadOutput("an item is too large, too deep, or has a text or address in it that"
                        " may not be stored") from None  # fmt: skip


def _check_finding(finding: wire.Finding) -> None:
    check_name(kind=finding.kind)
    attachments.check_value(finding.data)
    if len(encode(finding.data)) > hub_wire.VALUE_BYTES_MAX:
        raise Invalid


def _check_extract(command: hub_wire.AddAttachment) -> str:
    check_name(kind=command.kind)
    check_text(key=command.key, dedupe_key=command.dedupe_key)
    attachments.check(command)
    return command.dedupe_key or attachments.dedupe_key(command.value_json)
