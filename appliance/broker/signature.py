"""Pure: the two texts that members sign, and whether a signature is good.

    a request   agentlip-broker-v1 ⏎ METHOD ⏎ path ⏎ timestamp ⏎ sha256 of the body, hexadecimal
    a hello     agentlip-broker-link-v1 ⏎ mesh ⏎ member ⏎ timestamp

Joined by one newline each, none at the end; timestamps in milliseconds since 1970, decimal.
"""

import hashlib
import re

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

_KEY = re.compile("[0-9a-f]{64}")
_SIGNATURE = re.compile("[0-9a-f]{128}")


def request_text(method: str, path: str, timestamp: str, body: bytes) -> bytes:
    digest = hashlib.sha256(body).hexdigest()
    return "\n".join(("agentlip-broker-v1", method, path, timestamp, digest)).encode()


def hello_text(mesh: str, member: str, timestamp: int) -> bytes:
    return f"agentlip-broker-link-v1\n{mesh}\n{member}\n{timestamp}".encode()


def rotation_text(mesh: str, old: str, new: str) -> bytes:
    """What the new key signs when a member takes it instead of its old one."""
    return f"agentlip-broker-rotate-v1\n{mesh}\n{old}\n{new}".encode()


def sign(seed_hex: str, text: bytes) -> str:
    """For clients of ours: the signature by the key of this seed."""
    return SigningKey(bytes.fromhex(seed_hex)).sign(text).signature.hex()


def public_key(seed_hex: str) -> str:
    return SigningKey(bytes.fromhex(seed_hex)).verify_key.encode().hex()


def is_good(member: str, text: bytes, signature: str) -> bool:
    if not _KEY.fullmatch(member) or not _SIGNATURE.fullmatch(signature):
        return False
    try:
        VerifyKey(bytes.fromhex(member)).verify(text, bytes.fromhex(signature))
    except (BadSignatureError, ValueError):
        return False
    return True


def is_key(text: str) -> bool:
    """64 lowercase hexadecimal digits that are a point of the curve's main group."""
    if not _KEY.fullmatch(text):
        return False
    try:
        # A signature is only as good as its key: points of small order verify too much.
        from nacl.bindings import crypto_core_ed25519_is_valid_point

        return bool(crypto_core_ed25519_is_valid_point(bytes.fromhex(text)))
    except Exception:
        return False
