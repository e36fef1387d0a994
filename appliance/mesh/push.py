"""Defines a message as a broker pushes it to members (docs/reference/broker.md). Pure."""

from typing import Any

from msgspec import Struct

from appliance.mesh.fingerprint import DestinationKind, Priority


class Push(Struct, frozen=True):
    """A message as members receive it. `topic` is null for other destinations."""

    message_id: str
    client_message_id: str | None
    mesh: str
    topic: str | None
    destination_kind: DestinationKind
    destination_ref: str
    sender_pubkey: str
    sender_name: str
    priority: Priority
    meta: dict[str, Any] | None
    body: str
    reply_to_id: str | None
    created_at: str
