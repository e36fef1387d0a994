"""What makes two sends the same request: 32 bytes over all that the receiver would see.

Sender and receiver compute it alone and compare bytes, so this is part of the protocol and
never changes within an envelope version (outbox spec v8; daemon design v6, section 4.4).
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
    """SHA-256 over seven fields joined by NUL; absent and empty meta are the same.

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
    """What an error shows of it: the first 8 bytes in hexadecimal."""
    return digest[:8].hex()
