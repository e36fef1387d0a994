"""Signs webhooks as Standard Webhooks defines it. Pure.

    webhook-id          the event's: the same at every attempt
    webhook-timestamp   seconds since 1970, when the attempt began
    webhook-signature   v1,<base64 of HMAC-SHA256 over id.timestamp.body>, one for each secret

Source: github.com/standard-webhooks/standard-webhooks, specification 1.0.0.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence

from msgspec import Struct

from appliance.kernel.errors import Invalid

PREFIX = "whsec_"
KEY_BYTES_MIN = 24
KEY_BYTES_MAX = 64
NEW_KEY_BYTES = 32


class SignedRequest(Struct, frozen=True):
    """One attempt's request, signed with the current secrets."""

    url: str
    headers: dict[str, str]


class BadSecret(Invalid):
    default_message = f"not {PREFIX} followed by base64 of {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes"
    default_hint = "leave out `secret`, and a new one is generated"


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(NEW_KEY_BYTES)).decode()


def key_of(secret: str) -> bytes:
    """Return the key in a secret; raise BadSecret."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise BadSecret(details={"field": "secret"}) from None
    if not secret.startswith(PREFIX) or not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        raise BadSecret(details={"field": "secret"})
    return key


def sign(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    if "." in message_id:
        raise ValueError("a message id with a full stop would make signatures ambiguous")
    signed = b"%b.%d.%b" % (message_id.encode(), timestamp, body)
    digest = hmac.new(key_of(secret), signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def headers(keys: Sequence[str], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return one attempt's headers. During a rotation there is more than one secret."""
    return {
        "content-type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(sign(key, message_id, timestamp, body) for key in keys),
    }
