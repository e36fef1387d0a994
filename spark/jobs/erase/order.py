"""The order of an erasure: which messages, and what becomes of their senders. Pure.

{"schema_version": 1, "reference": "request 17", "senders": ["ann"], "before": "2026-02-01",
 "sender_becomes": "former member"}
"""

import hashlib
import json
from datetime import date
from typing import Any, NamedTuple

from spark.errors import Usage
from spark.locations import Location

SCHEMA_VERSION = 1
BYTES_MAX = 4 * 1024 * 1024
ITEMS_MAX = 10_000  # in one list; for more messages, name a channel, a topic or a day
TEXT_MAX = 200  # characters of an id, a name or the reference
LISTS = ("messages", "senders", "channels", "topics")
HINT = "the fields of an order: docs/how-to/erase.md"


class ErasureOrder(NamedTuple):
    """A message is selected by any of the lists, and by `before` if that is given.

    before          the first day (UTC) of which messages stay; None for no limit
    sender_becomes  replaces the senders' names; None keeps them
    sha256          of the file, in hexadecimal: the identity of the order
    """

    sha256: str
    reference: str
    messages: tuple[str, ...] = ()
    senders: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    before: date | None = None
    sender_becomes: str | None = None


def read(path: Location) -> ErasureOrder:
    """The order in the file. Raises Usage with the field that is wrong."""
    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise Usage(f"the order {path} cannot be read: {error.strerror}", HINT) from None
    if len(data) > BYTES_MAX:
        raise Usage(f"the order {path} has more than {BYTES_MAX:,} bytes", HINT)
    return parse(data)


def parse(data: bytes) -> ErasureOrder:
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise Usage("the order is not JSON", HINT) from None
    if not isinstance(fields, dict):
        raise Usage("the order is not a JSON object", HINT)
    if fields.get("schema_version") != SCHEMA_VERSION:
        raise Usage(f"the order needs schema_version {SCHEMA_VERSION}", HINT)
    known = {"schema_version", "reference", "before", "sender_becomes", *LISTS}
    if unknown := sorted(set(fields) - known):
        raise Usage(f"the order has an unknown field: {unknown[0]}", HINT)
    lists = {name: _texts(name, fields.get(name, [])) for name in LISTS}
    before = _day(fields.get("before"))
    if before is None and not any(lists.values()):
        raise Usage("the order selects nothing: set one of its lists, or before", HINT)
    becomes = fields.get("sender_becomes")
    return ErasureOrder(
        sha256=hashlib.sha256(data).hexdigest(),
        reference=_text("reference", fields.get("reference", "")),
        before=before,
        sender_becomes=None if becomes is None else _text("sender_becomes", becomes, 1),
        **lists,
    )


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > ITEMS_MAX:
        raise Usage(f"{name} of the order is not a list of at most {ITEMS_MAX:,} texts", HINT)
    return tuple(dict.fromkeys(_text(name, item, 1) for item in value))


def _text(name: str, value: Any, length_min: int = 0) -> str:
    if not isinstance(value, str) or not length_min <= len(value) <= TEXT_MAX:
        raise Usage(f"{name} of the order needs texts of at most {TEXT_MAX} characters", HINT)
    return value


def _day(value: Any) -> date | None:
    try:
        return None if value is None else date.fromisoformat(value)
    except (TypeError, ValueError):
        raise Usage("before of the order is not a day such as 2026-02-01", HINT) from None
