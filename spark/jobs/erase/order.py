"""Parses an erasure order: the messages to erase and the senders to rename. Pure.

{"schema_version": 1, "reference": "request 17", "senders": ["ann"], "before": "2026-02-01",
"sender_becomes": "former member"}
"""

import hashlib
from datetime import date
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, MsgspecError, Struct, json, structs

from spark.errors import Usage
from spark.locations import Location

BYTES_MAX = 4 * 1024 * 1024
ITEMS_MAX = 10_000  # in one list; for more messages, name a channel, a topic or a day
TEXT_MAX = 200  # characters of an id, a name or the reference
LISTS = ("messages", "senders", "channels", "topics")
HINT = "the fields of an order: docs/how-to/erase.md"
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=TEXT_MAX)]
Names: TypeAlias = Annotated[tuple[Name, ...], Meta(max_length=ITEMS_MAX)]


class OrderFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Any list selects a message. `before` narrows the lists; without a list, it selects alone.

    before          the first day (UTC) whose messages stay; None for no limit
    sender_becomes  replaces the senders' names; None keeps them
    """

    schema_version: Literal[1]
    reference: Annotated[str, Meta(max_length=TEXT_MAX)] = ""
    messages: Names = ()
    senders: Names = ()
    channels: Names = ()
    topics: Names = ()
    before: date | None = None
    sender_becomes: Name | None = None


class ErasureOrder(OrderFile, frozen=True, kw_only=True):
    """The order, identified by the file's SHA-256 in hexadecimal."""

    sha256: str


def read(path: Location) -> ErasureOrder:
    """Parse the order file. Raises Usage with the wrong field."""
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
        fields = structs.asdict(json.decode(data, type=OrderFile))
    except (MsgspecError, RecursionError) as error:
        raise Usage(f"the order is malformed: {error}", HINT) from None
    if not any(fields[name] for name in ("before", *LISTS)):
        raise Usage("the order selects nothing: set one of its lists, or before", HINT)
    return ErasureOrder(**fields, sha256=hashlib.sha256(data).hexdigest())
