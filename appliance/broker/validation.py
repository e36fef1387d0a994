"""Pure: what is refused before an id is looked at (B1), and what a known id is answered.

    B1  schema, size, fingerprint, member   nothing is stored, the id is not used up
    B0  the id is known                     200 or 409, before any limit is asked
    B2  destination, inside the transaction nothing is stored, the id is not used up
    B3  all rows in one commit              201, the id is used up

| known | fingerprint | answer |
| --- | --- | --- |
| no | | goes on to B2 |
| yes | the same | 200, `duplicate`, with `history_available` |
| yes | another | 409 `request_fingerprint_mismatch` |
| yes | the same, of another member | 409 `sender_mismatch` |
"""

from typing import Any

from msgspec import Struct

from appliance.broker import wire
from appliance.broker.settings import BrokerSettings
from appliance.kernel.clock import iso
from appliance.kernel.errors import Invalid
from appliance.mesh.canonical import canonical
from appliance.mesh.fingerprint import fingerprint, prefix

RANKS: dict[str, int] = {"now": 0, "next": 1, "low": 2}
MISMATCH, OTHER_SENDER = "request_fingerprint_mismatch", "sender_mismatch"


class Command(Struct, frozen=True):
    """A send that passed B1: everything the transaction writes. `skew_ms`: by how much the clock
    was set in all, so that ages are counted without it."""

    mesh_id: str
    client_message_id: str
    fingerprint: bytes
    kind: str
    ref: str
    reply_to_id: str | None
    priority: str
    meta: str | None
    body: str
    mentions: tuple[str, ...]
    sender_pubkey: str
    sender_name: str
    retention_ms: int | None
    skew_ms: int = 0


class Known(Struct, frozen=True):
    """A dedupe row. `sender` is the key that its member has now; None: it is not known any more."""

    broker_message_id: str
    history_id: str
    fingerprint: bytes
    history_available: bool
    first_seen_ms: int
    sender: str | None = None


def digest_of(item: wire.AcceptItem, settings: BrokerSettings) -> tuple[bytes, str | None]:
    """The request's fingerprint and its meta as JSON; raises what B1 refuses of the item itself."""
    body = _encoded(item.body, "body")
    if len(body) > settings.inline_bytes_max:
        raise wire.BodyTooLarge(details={"bytes_max": settings.inline_bytes_max, "field": "body"})
    for name in ("client_message_id", "destination_ref", "reply_to_id"):
        _encoded(getattr(item, name) or "", name)
    meta = canonical(item.meta) if item.meta else None
    if meta is not None and len(meta) > settings.meta_bytes_max:
        raise wire.BodyTooLarge(details={"bytes_max": settings.meta_bytes_max, "field": "meta"})
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


def mentions_of(meta: dict[str, Any] | None, most: int) -> tuple[str, ...]:
    """Who is named in `meta.mentions`, each once. What is no text there is none of ours."""
    named = (meta or {}).get("mentions")
    if not isinstance(named, list):
        return ()
    found = tuple(dict.fromkeys(one for one in named if isinstance(one, str) and one))
    if len(found) > most:
        raise wire.TooManyMentions(details={"limit": most})
    return found


def answer_known(command: Command, known: Known) -> wire.Receipt:
    """What an id that is used up is answered: the first answer again, or KeyReused."""
    client_message_id = command.client_message_id
    same = known.fingerprint == command.fingerprint
    if not same or known.sender not in (None, command.sender_pubkey):
        kind = wire.IdOfAnother if same else wire.KeyReused
        raise kind(
            extra={
                "client_message_id": client_message_id,
                "conflict": OTHER_SENDER if same else MISMATCH,
                "broker_fingerprint_prefix": prefix(known.fingerprint),
            }
        )
    return wire.Receipt(
        known.broker_message_id,
        client_message_id,
        known.history_id,
        True,
        known.history_available,
        iso(known.first_seen_ms),
    )


def _encoded(text: str, name: str) -> bytes:
    if "\0" in text:
        raise Invalid(f"{name}: text must not contain NUL", details={"field": name})
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Invalid(f"{name}: text must be valid Unicode", details={"field": name}) from None
