"""Creates, encodes and validates member keys and their archive. No file access.

The ed25519 key signs; the x25519 pair derived from it decrypts data sealed for the member. Only the
x25519 pair is archived, because an old signing key has no legitimate use.
"""

from typing import Any, Literal, TypeVar

import msgspec
from nacl.exceptions import CryptoError
from nacl.public import PrivateKey
from nacl.signing import SigningKey

from appliance.identity.wire import KeysDamaged

T = TypeVar("T")

ARCHIVE_DAYS = 7  # how long a rotated-out key decrypts older envelopes
ARCHIVED_KEYS_MAX = 8  # the oldest is removed first
MALFORMED = "keypair_archive_malformed"
DUPLICATE = "keypair_archive_duplicate_key_id"


class ReadingKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The part of a key that the archive keeps. `key_id`: a prefix of the public key."""

    ed25519_pubkey: str
    x25519_pubkey: str
    x25519_privkey: str
    key_id: str
    created_at: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.key_id!r})"


class KeyPair(ReadingKey, frozen=True, kw_only=True):
    """`keypair.json`."""

    ed25519_seed: str
    schema_version: int = 1

    @property
    def signing(self) -> SigningKey:
        return SigningKey(bytes.fromhex(self.ed25519_seed))

    @property
    def public_hex(self) -> str:
        return self.ed25519_pubkey

    def sign(self, text: bytes) -> bytes:
        """Return the ed25519 signature, 64 bytes."""
        return self.signing.sign(text).signature


class KeyRotation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`keypair-next.json`: the next key, and the meshes whose brokers accepted it."""

    keys: KeyPair
    taken: tuple[str, ...] = ()


class ArchivedKeyPair(ReadingKey, frozen=True):
    rotated_out_at: str
    expires_at: str


class KeyArchive(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`keypair-archive.json`, oldest first."""

    keys: tuple[ArchivedKeyPair, ...] = ()
    max_archived_keys: int = ARCHIVED_KEYS_MAX
    schema_version: Literal[1] = 1


def make(created_at: str) -> KeyPair:
    return _keys_of(SigningKey.generate(), created_at)


def read_keys(text: bytes) -> KeyPair:
    """Decode a key pair. Raises KeysDamaged for an invalid key, or if its parts don't match."""
    return _check(_decode(text, KeyPair, "keypair_malformed"))


def read_rotation(text: bytes) -> KeyRotation:
    """Decode an unfinished rotation. Raises KeysDamaged."""
    rotation = _decode(text, KeyRotation, "keypair_malformed")
    _check(rotation.keys)
    return rotation


def read_archive(text: bytes) -> KeyArchive:
    """Decode the archive. Raises KeysDamaged with the contract's code."""
    archive = _decode(text, KeyArchive, MALFORMED)
    try:
        public = [PrivateKey(bytes.fromhex(k.x25519_privkey)).public_key for k in archive.keys]
    except (ValueError, CryptoError, TypeError):
        raise _damage_error(MALFORMED) from None
    if [bytes(key).hex() for key in public] != [key.x25519_pubkey for key in archive.keys]:
        raise _damage_error(MALFORMED)
    if len({key.key_id for key in archive.keys}) != len(archive.keys):
        raise _damage_error(DUPLICATE)
    return archive


def archived(keys: KeyPair, rotated_out_at: str, expires_at: str) -> ArchivedKeyPair:
    kept = {name: getattr(keys, name) for name in ReadingKey.__struct_fields__}
    return ArchivedKeyPair(**kept, rotated_out_at=rotated_out_at, expires_at=expires_at)


def add(archive: KeyArchive, key: ArchivedKeyPair, now: str) -> tuple[KeyArchive, int]:
    """Return the archive with `key` and without expired keys, and how many others the limit
    removed."""
    others = [entry for entry in archive.keys if entry.key_id != key.key_id]
    kept = [entry for entry in (*others, key) if entry.expires_at > now]
    return KeyArchive(tuple(kept[-ARCHIVED_KEYS_MAX:])), max(0, len(kept) - ARCHIVED_KEYS_MAX)


def text_of(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def _decode(text: bytes, kind: type[T], problem: str) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError:
        raise _damage_error(problem) from None


def _damage_error(problem: str) -> KeysDamaged:
    """Return the error for damaged keys. `problem`: a code, also for the log."""
    return KeysDamaged(details={"problem": problem})


def _check(keys: KeyPair) -> KeyPair:
    try:
        derived = _keys_of(keys.signing, keys.created_at)
    except (ValueError, CryptoError, TypeError):
        raise _damage_error("keypair_malformed") from None
    if msgspec.structs.replace(derived, schema_version=keys.schema_version) != keys:
        raise _damage_error("keypair_mismatch")
    return keys


def _keys_of(signing: SigningKey, created_at: str) -> KeyPair:
    public = signing.verify_key.encode().hex()
    private = signing.to_curve25519_private_key()
    return KeyPair(
        ed25519_pubkey=public,
        ed25519_seed=signing.encode().hex(),
        x25519_pubkey=bytes(private.public_key).hex(),
        x25519_privkey=bytes(private).hex(),
        key_id=public[:16],
        created_at=created_at,
    )
