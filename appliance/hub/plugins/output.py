"""Validates a plugin's output: decoded strictly, and refused as a whole if any part is invalid."""

from typing import Any

import msgspec

from appliance.hub import attachments
from appliance.hub import wire as hub_wire
from appliance.hub.events import encode
from appliance.hub.plugins import wire
from appliance.hub.text import check_name, check_text
from appliance.kernel.errors import ApplianceError, Invalid

Added = tuple[hub_wire.AddAttachment, str]  # with its dedupe key

ITEMS_MAX = 100  # one message's findings or attachments, which are stored together
_findings = msgspec.json.Decoder(list[wire.EnrichmentFinding]).decode
_extracts = msgspec.json.Decoder(list[wire.Extract]).decode


class BadOutput(Exception):
    """The output is refused. The message has the reason, and nothing from the output itself."""


def findings(raw: msgspec.Raw, content: str) -> list[wire.EnrichmentFinding]:
    """Return a linkifier's output, if everything can be stored for this text. Raises BadOutput."""
    items: list[wire.EnrichmentFinding] = _decode(_findings, raw)
    for finding in items:
        if not finding.span.start < finding.span.end <= len(content):
            raise BadOutput("a span is empty or outside the message's text")
        _judge(_check_finding, finding)
    return items


def extracts(raw: msgspec.Raw, message_id: str) -> list[Added]:
    """Return an extractor's output as commands to add attachments. Raises BadOutput."""
    added = []
    for extract in _decode(_extracts, raw):
        command = hub_wire.AddAttachment(
            extract.kind, extract.value_json, extract.key or None, extract.dedupe_key, message_id
        )
        added.append((command, _judge(_check_extract, command)))
    return added


def _decode(decode: Any, raw: msgspec.Raw) -> Any:
    try:
        items = decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise BadOutput("the output is not a list of items that this plugin type returns") from None
    if len(items) > ITEMS_MAX:
        raise BadOutput(f"the output has more than {ITEMS_MAX} items")
    return items


def _judge(check: Any, item: Any) -> Any:
    try:
        return check(item)
    except (ApplianceError, RecursionError, UnicodeError):
        raise BadOutput("an item is too large, too deep, or contains a text or address that"
                        " can't be stored") from None  # fmt: skip


def _check_finding(finding: wire.EnrichmentFinding) -> None:
    check_name(kind=finding.kind)
    attachments.check_value(finding.data)
    if len(encode(finding.data)) > hub_wire.VALUE_BYTES_MAX:
        raise Invalid


def _check_extract(command: hub_wire.AddAttachment) -> str:
    check_name(kind=command.kind)
    check_text(key=command.key, dedupe_key=command.dedupe_key)
    attachments.check(command)
    return command.dedupe_key or attachments.dedupe_key(command.value_json)
