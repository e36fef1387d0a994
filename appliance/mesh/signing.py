"""Pure: the texts that members sign, and whether a signature is valid.

Version 2. The lines of each text are joined by one newline, with none at the end.

    a request   agentlip-broker-v2 ⏎ METHOD ⏎ broker id ⏎ path ⏎ query ⏎ timestamp ⏎ nonce
                ⏎ sha256 of the body, hexadecimal
    a hello     agentlip-broker-link-v2 ⏎ broker id ⏎ mesh ⏎ member ⏎ nonce of the challenge
    a rotation  agentlip-broker-rotate-v1 ⏎ mesh ⏎ old key ⏎ new key (signed by the new one)

The path is percent-decoded and has no query; the query is sent and signed as it is, without `?`.
Timestamps are milliseconds since 1970, decimal. Version 1 had neither broker id, query nor nonce,
and is refused.
"""

import hashlib
import re
from typing import Literal, Protocol

from nacl.bindings import crypto_core_ed25519_is_valid_point
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

_KEY = re.compile("[0-9a-f]{64}")
_SIGNATURE = re.compile("[0-9a-f]{128}")
_NONCE = re.compile("[A-Za-z0-9_-]{16,64}")


RotationOutcome = Literal["taken", "refused", "unknown"]
"""A broker's answer to a new key; unknown: the broker may have accepted it."""


class Signer(Protocol):
    """A member's key pair, which never reveals its private half."""

    @property
    def public_hex(self) -> str: ...

    def sign(self, text: bytes) -> bytes:
        """Return the signature, 64 bytes."""


class MemberKeys(Protocol):
    """This appliance's keys: one per mesh, and recent former ones."""

    def in_mesh(self, mesh: str) -> Signer: ...

    def is_own(self, pubkey: str) -> bool: ...


def request_text(
    method: str, broker: str, path: bytes, query: str, timestamp: str, nonce: str, body: bytes
) -> bytes:
    digest = hashlib.sha256(body).hexdigest()
    head = f"agentlip-broker-v2\n{method}\n{broker}\n".encode()
    return head + path + f"\n{query}\n{timestamp}\n{nonce}\n{digest}".encode()


def hello_text(broker: str, mesh: str, member: str, nonce: str) -> bytes:
    return f"agentlip-broker-link-v2\n{broker}\n{mesh}\n{member}\n{nonce}".encode()


def rotation_text(mesh: str, old: str, new: str) -> bytes:
    """Return the text that the new key signs when a member replaces its key."""
    return f"agentlip-broker-rotate-v1\n{mesh}\n{old}\n{new}".encode()


def sign(seed_hex: str, text: bytes) -> str:
    """Return the signature by this seed's key, in hexadecimal."""
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


def is_nonce(text: str) -> bool:
    """Return whether the text has 16 to 64 letters, digits, `_` or `-`."""
    return _NONCE.fullmatch(text) is not None


def is_hex_key(text: str) -> bool:
    """Return whether the text has 64 lowercase hexadecimal digits."""
    return _KEY.fullmatch(text) is not None


def is_key(text: str) -> bool:
    """Return whether the text has 64 lowercase hexadecimal digits that are a point in the
    curve's main group."""
    # Small-order keys would accept signatures that nobody made.
    return is_hex_key(text) and bool(crypto_core_ed25519_is_valid_point(bytes.fromhex(text)))
