"""Defines the frames that members and brokers exchange (docs/reference/broker.md). Pure."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Pubkey = Annotated[str, Meta(min_length=64, max_length=64, description="ed25519, hexadecimal")]


class Hello(Struct, frozen=True, forbid_unknown_fields=True, tag="hello", tag_field="type"):
    """Sent twice: first without a signature, then with the `nonce` from the broker's challenge
    and a signature over `signing.hello_text`. `timestamp` is ignored: it belongs to signature
    version 1."""

    mesh: str
    member: Pubkey
    timestamp: int = 0
    signature: str = ""
    nonce: str = ""


class Feature(Struct, frozen=True, forbid_unknown_fields=True):
    """A feature with the parameters that the member requires."""

    name: str
    params: dict[str, Any] = {}


class Negotiate(Struct, frozen=True, forbid_unknown_fields=True, tag="negotiate", tag_field="type"):
    """Sent after hello_ack. A feature is given by its name, or with parameters."""

    require: Annotated[list[str | Feature], Meta(max_length=50)] = []
    optional: Annotated[list[str | Feature], Meta(max_length=50)] = []


class ClientAck(
    Struct, frozen=True, forbid_unknown_fields=True, tag="client_ack", tag_field="type"
):
    """The member has stored these messages. A single one needs no list."""

    message_id: str | None = None
    message_ids: Annotated[list[str], Meta(max_length=1000)] = []


class Presence(Struct, frozen=True, forbid_unknown_fields=True, tag="status", tag_field="type"):
    """An idle member receives everything; otherwise only messages of priority `now`."""

    status: Literal["idle", "working", "dnd"]


MemberFrame = Hello | Negotiate | ClientAck | Presence
