"""Computes the request fingerprint: 32 bytes over everything that the receiver sees in a send.

Two sends with one fingerprint are one request. Sender and broker compute fingerprints
independently, so the method never changes within an envelope version (outbox spec v8; daemon design
v6, section 4.4).
"""

import hashlib
from typing import Any, Literal

import msgspec

from appliance.kernel.errors import Invalid
from appliance.mesh.canonical import canonical

ENVELOPE_VERSION = "1"

DestinationKind = Literal["topic", "dm", "queue"]
Priority = Literal["now", "next", "low"]


def fingerprint(
    kind: DestinationKind,
    ref: str,
    body: bytes,
    *,
    reply_to_id: str | None = None,
    priority: Priority = "next",
    meta: dict[str, Any] | None = None,
) -> bytes:
    """Return the SHA-256 over seven fields joined by NUL. No meta equals an empty one.

    Raises NotCanonical when `meta` has no canonical form.
    """
    fields = (
        ENVELOPE_VERSION.encode(),
        kind.encode(),
        ref.encode(),
        (reply_to_id or "").encode(),
        priority.encode(),
        canonical(meta) if meta else b"",
        hashlib.sha256(body).hexdigest().encode(),
    )
    return hashlib.sha256(b"\0".join(fields)).digest()


def of_stored(
    kind: DestinationKind,
    ref: str,
    body: bytes | str,
    reply_to_id: str | None,
    priority: Priority,
    meta: str | None,
) -> bytes:
    """Return the fingerprint for a stored send: `meta` is JSON. Raises Invalid if there is none."""
    stored = body.encode() if isinstance(body, str) else body
    try:
        decoded = msgspec.json.decode(meta) if meta else None
    except msgspec.DecodeError as error:
        raise Invalid("the stored meta is not JSON") from error
    return fingerprint(kind, ref, stored, reply_to_id=reply_to_id, priority=priority, meta=decoded)


def matches(digest: bytes, *stored: Any) -> bool:
    """Return whether stored values match this fingerprint."""
    try:
        return of_stored(*stored) == digest
    except Invalid:
        return False


def prefix(digest: bytes) -> str:
    """Return the first 8 bytes in hexadecimal, for error messages."""
    return digest[:8].hex()
