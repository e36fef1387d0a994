"""Implements agents' Ed25519 keys, and the X25519 keys derived from them. Pure.

public key    base64 of SPKI DER: 12 prefix bytes, 32 key bytes
private key   base64 of PKCS #8 DER: 16 prefix bytes, 32 seed bytes
X25519        private: SHA-512(seed)[:32], clamped; public: u = (1 + y) / (1 - y)
"""

import hashlib
import os

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from appliance.kernel.errors import Invalid
from appliance.network.encoding import of_base64, to_base64

SPKI = bytes.fromhex("302a300506032b6570032100")
PKCS8 = bytes.fromhex("302e020100300506032b657004220420")
KEY_BYTES = 32
P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
# The eight small-order points' y. Such a key accepts signatures that nobody made, and everybody
# knows a secret shared with such a key.
_ORDER_8 = int.from_bytes(
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f 2a2053fa2c39ccc64ec7fd7792ac037a"), "little"
)
LOW_ORDER = frozenset({0, 1, P - 1, _ORDER_8, P - _ORDER_8})


class BadKey(Invalid):
    code = "BAD_KEY"
    default_message = "this is not a usable Ed25519 key"
    default_hint = "send the key's DER in base64: SPKI for a public key, PKCS #8 for a private one"


class AgentPublicKey:
    """An agent's public key. `raw`: 32 bytes. Two keys with equal bytes are equal."""

    def __init__(self, raw: bytes) -> None:
        """Check the bytes. Raises BadKey if they are not a curve point, or if the point has
        small order."""
        self._y = _usable_y(raw)
        self.raw = raw
        self._verify = Ed25519PublicKey.from_public_bytes(raw).verify

    @classmethod
    def of(cls, text: str) -> "AgentPublicKey":
        return cls(_of_der(text, SPKI))

    def __str__(self) -> str:
        return to_base64(SPKI + self.raw)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AgentPublicKey) and other.raw == self.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def is_signed(self, text: bytes, signature: str) -> bool:
        """Return whether this key made the base64 signature for `text`."""
        try:
            self._verify(of_base64(signature), text)
        except (InvalidSignature, ValueError):
            return False
        return True

    def to_x25519(self) -> bytes:
        u = (1 + self._y) * pow(1 - self._y, -1, P) % P
        return u.to_bytes(KEY_BYTES, "little")


class AgentKey:
    """A key pair. Only `pkcs8` reveals the private half."""

    def __init__(self, seed: bytes) -> None:
        """Derive the key pair from a seed. Raises BadKey."""
        if len(seed) != KEY_BYTES:
            raise BadKey
        self._seed = seed
        private = Ed25519PrivateKey.from_private_bytes(seed)
        self._sign = private.sign
        self._x25519 = X25519PrivateKey.from_private_bytes(self.x25519_private())
        raw = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.public = AgentPublicKey(raw)

    @classmethod
    def generate(cls) -> "AgentKey":
        return cls(os.urandom(KEY_BYTES))

    @classmethod
    def of(cls, pkcs8: str) -> "AgentKey":
        return cls(_of_der(pkcs8, PKCS8))

    def pkcs8(self) -> str:
        return to_base64(PKCS8 + self._seed)

    def sign(self, text: bytes) -> str:
        return to_base64(self._sign(text))

    def x25519_private(self) -> bytes:
        digest = bytearray(hashlib.sha512(self._seed).digest()[:KEY_BYTES])
        digest[0] &= 248
        digest[31] = digest[31] & 127 | 64
        return bytes(digest)

    def shared_secret(self, peer: AgentPublicKey) -> bytes:
        """Return the X25519 shared secret. Raises BadKey if all bytes are zero."""
        try:
            return self._x25519.exchange(X25519PublicKey.from_public_bytes(peer.to_x25519()))
        except ValueError:
            raise BadKey from None


def rotation_text(name: str, former: AgentPublicKey, key: AgentPublicKey) -> bytes:
    """Return the text that the former and the new key sign when an agent replaces the key."""
    return f"agentlip-network-rotate-v1\n{name}\n{former}\n{key}".encode()


def recovery_text(name: str, key: AgentPublicKey) -> bytes:
    """Return the text that the new key signs when an owner recovers an agent by mail."""
    return f"agentlip-network-recover-v1\n{name}\n{key}".encode()


def _of_der(text: str, prefix: bytes) -> bytes:
    try:
        der = of_base64(text.strip())
    except ValueError:
        raise BadKey from None
    if not der.startswith(prefix):
        raise BadKey
    return der[len(prefix) :]


def _usable_y(raw: bytes) -> int:
    encoded = int.from_bytes(raw, "little")
    y = encoded & (2**255 - 1)
    if len(raw) != KEY_BYTES or y >= P or y in LOW_ORDER:
        raise BadKey
    # x² = (y² - 1) / (d·y² + 1) has a root; x is 0 only for small-order points.
    numerator, denominator = y * y - 1, D * y * y + 1
    if pow(numerator * denominator, (P - 1) // 2, P) != 1:
        raise BadKey
    return y
