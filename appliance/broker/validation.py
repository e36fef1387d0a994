"""Pure: the checks before the id is looked up (B1), and the reply for a known id.

    B1  schema, size, fingerprint, member   nothing is stored, the id stays unused
    B0  the id is known                     200 or 409, before the rate limit
    B2  destination, inside the transaction nothing is stored, the id stays unused
    B3  all rows in one commit              201, the id is used

| known | fingerprint | answer |
| --- | --- | --- |
| no | | continues with B2 |
| yes | the same | 200, `duplicate`, with `history_available` |
| yes | another | 409 `request_fingerprint_mismatch` |
| yes | the same, of another member | 409 `sender_mismatch` |
"""

from typing import Any

from msgspec import Struct

from appliance.broker import wire
from appliance.broker.rows import MemberRow, MeshRow
from appliance.kernel.clock import iso
from appliance.kernel.errors import Invalid
from appliance.mesh.canonical import canonical
from appliance.mesh.fingerprint import fingerprint, prefix

META_BYTES_MAX = 16_384  # one message's meta size as canonical JSON
RANKS: dict[str, int] = {"now": 0, "next": 1, "low": 2}
MISMATCH, OTHER_SENDER = "request_fingerprint_mismatch", "sender_mismatch"


class Command(Struct, frozen=True):
    """A send that passed B1: everything the transaction writes. `meta` is JSON."""

    mesh: MeshRow
    sender: MemberRow
    send: wire.AcceptItem
    fingerprint: bytes
    meta: str | None
    mentions: tuple[str, ...]


class DedupeRecord(Struct, frozen=True):
    """A dedupe row. `sender` is the sending member's current key; None: unknown."""

    broker_message_id: str
    history_id: str
    fingerprint: bytes
    history_available: bool
    first_seen_ms: int
    sender: str | None = None


def digest_of(item: wire.AcceptItem) -> tuple[bytes, str | None]:
    """Return the request's fingerprint and its meta as JSON. Raises if the item itself is wrong."""
    body = _encode(item.body, "body")
    if len(body) > wire.INLINE_BYTES_MAX:
        raise wire.BodyTooLarge(details={"bytes_max": wire.INLINE_BYTES_MAX, "field": "body"})
    for name in ("client_message_id", "destination_ref", "reply_to_id"):
        _encode(getattr(item, name) or "", name)
    meta = canonical(item.meta) if item.meta else None
    if meta is not None and len(meta) > META_BYTES_MAX:
        raise wire.BodyTooLarge(details={"bytes_max": META_BYTES_MAX, "field": "meta"})
    digest = fingerprint(
        item.destination_kind,
        item.destination_ref,
        body,
        reply_to_id=item.reply_to_id,
        priority=item.priority,
        meta=item.meta,
    )
    if digest.hex() != item.request_fingerprint:
        raise wire.FingerprintDiffers(
            details={"field": "request_fingerprint"},
            extra={
                "client_message_id": item.client_message_id,
                "broker_fingerprint_prefix": prefix(digest),
            },
        )
    return digest, None if meta is None else meta.decode()


def mentions_of(meta: dict[str, Any] | None, limit: int) -> tuple[str, ...]:
    """Return the keys and names in `meta.mentions`, each once. Anything that is not text is
    ignored."""
    named = (meta or {}).get("mentions")
    if not isinstance(named, list):
        return ()
    mentions = tuple(dict.fromkeys(name for name in named if isinstance(name, str) and name))
    if len(mentions) > limit:
        raise wire.TooManyMentions(details={"limit": limit})
    return mentions


def duplicate_receipt(command: Command, record: DedupeRecord) -> wire.Receipt:
    """Return the reply for an id that was used before: the first receipt, or
    ClientMessageIdReused."""
    client_message_id = command.send.client_message_id
    same = record.fingerprint == command.fingerprint
    if not same or record.sender not in (None, command.sender.pubkey):
        kind = wire.ClientMessageIdOfOther if same else wire.ClientMessageIdReused
        raise kind(
            extra={
                "client_message_id": client_message_id,
                "conflict": OTHER_SENDER if same else MISMATCH,
                "broker_fingerprint_prefix": prefix(record.fingerprint),
            }
        )
    return wire.Receipt(
        record.broker_message_id,
        client_message_id,
        record.history_id,
        True,
        record.history_available,
        iso(record.first_seen_ms),
    )


def _encode(text: str, name: str) -> bytes:
    if "\0" in text:
        raise Invalid(f"{name}: text must not contain NUL", details={"field": name})
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Invalid(f"{name}: text must be valid Unicode", details={"field": name}) from None
