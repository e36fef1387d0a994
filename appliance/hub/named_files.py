"""Finds the files that texts name, as `sha256:HEX`, and the worker bus's payloads, `sha256-HEX`."""

import re

from msgspec import json

from appliance.kernel.batch import Tx

_NAME = re.compile(rb"sha256[:-]([0-9a-f]{64})(?![0-9a-f])")
_EXPIRE = """UPDATE x_blobs SET kept_steady_ms = 0 WHERE hash IN (SELECT value FROM json_each(?1))
    AND NOT EXISTS (SELECT 1 FROM x_blob_puts AS p WHERE p.hash = x_blobs.hash AND p.principal
     IS NOT (SELECT principal FROM x_message_principals WHERE message_id = ?2))"""


def named_in(text: bytes) -> set[str]:
    """Return the hashes that a text names."""
    return {name.decode() for name in _NAME.findall(text)}


def expire_named(tx: Tx, message_id: str, text: str) -> None:
    """Let files go without grace that only the message's author had put: a deleted message named
    them. The collector keeps those that another text names."""
    if digests := named_in(text.encode()):
        tx.execute(_EXPIRE, (json.encode(sorted(digests)).decode(), message_id))
