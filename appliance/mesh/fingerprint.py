"""The request fingerprint: 32 bytes over everything the receiver sees of a send.

Two sends with the same fingerprint are the same request. Sender and broker compute it
independently, so it never changes within an envelope version (outbox spec v8; daemon design v6,
section 4.4).
"""

import hashlib
from typing import Any, Literal

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
    """SHA-256 over seven fields joined by NUL. No meta and an empty one are equal.

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


def prefix(digest: bytes) -> str:
    """The first 8 bytes in hexadecimal, for error messages."""
    return digest[:8].hex()
