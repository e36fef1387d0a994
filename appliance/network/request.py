"""Signs and verifies requests to a relay. Pure.

    Authorization: Signature NAME:BASE64
    X-Timestamp: 2026-02-17T12:00:00.000Z

    signed text   METHOD PATH ⏎ timestamp ⏎ sha256 of the body, hexadecimal

One newline joins two lines; the text has no newline at the end. Clients sign the path with the
query. A relay also accepts a signature for the path alone, because the first relay verified that
form.
"""

import hashlib
from typing import NamedTuple

from appliance.kernel.clock import iso
from appliance.network.keys import AgentKey, AgentPublicKey
from appliance.network.names import is_agent_name

SCHEME = "Signature "
HEADER_MAX = 200  # characters: a name (32), a signature (88) and the scheme are fewer


class RequestSignature(NamedTuple):
    name: str
    signature: str


def request_text(method: str, path: str, timestamp: str, body: bytes) -> bytes:
    digest = hashlib.sha256(body).hexdigest()
    return f"{method} {path}\n{timestamp}\n{digest}".encode()


def request_headers(
    key: AgentKey, name: str, method: str, path: str, body: bytes, now_ms: int
) -> dict[str, str]:
    """Return the headers for one attempt. `path` includes the query, without a proxy's prefix."""
    timestamp = iso(now_ms)
    signature = key.sign(request_text(method, path, timestamp, body))
    return {"Authorization": f"{SCHEME}{name}:{signature}", "X-Timestamp": timestamp}


def of_header(authorization: str) -> RequestSignature | None:
    """Parse the header; return None if the header is not an agent's signature."""
    if not authorization.startswith(SCHEME) or len(authorization) > HEADER_MAX:
        return None
    name, _, signature = authorization.removeprefix(SCHEME).partition(":")
    return RequestSignature(name, signature) if is_agent_name(name) and signature else None


def is_request_signed(
    key: AgentPublicKey,
    signature: str,
    method: str,
    path: str,
    query: str,
    timestamp: str,
    body: bytes,
) -> bool:
    """Return whether `key` signed this request, with the query or without."""
    paths = [f"{path}?{query}", path] if query else [path]
    return any(
        key.is_signed(request_text(method, signed_path, timestamp, body), signature)
        for signed_path in paths
    )
