"""Lets files go that a deleted message named."""

from msgspec import json

from appliance.kernel.batch import Tx
from appliance.workspace.named_files import named_in

_EXPIRE = """UPDATE x_blobs SET kept_steady_ms = 0 WHERE hash IN (SELECT value FROM json_each(?1))
    AND NOT EXISTS (SELECT 1 FROM x_blob_puts AS p WHERE p.hash = x_blobs.hash AND p.principal
     IS NOT (SELECT principal FROM x_message_principals WHERE message_id = ?2))"""


def expire_named(tx: Tx, message_id: str, text: str) -> None:
    """Let files go without grace that a deleted message named, and that only its author had put.
    The collector keeps files that another text names."""
    if digests := named_in(text.encode()):
        tx.execute(_EXPIRE, (json.encode(sorted(digests)).decode(), message_id))
