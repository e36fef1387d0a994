"""Member keys and the archive, as they are made and as they are stored. No files here.

An ed25519 key signs; the x25519 pair derived from it decrypts what was sealed for the member.
Only the latter goes to the archive: an old signing key is of no use to anybody honest.
"""

from typing import Any

import msgspec
from nacl.exceptions import CryptoError
from nacl.public import PrivateKey
from nacl.signing import SigningKey

ARCHIVE_VERSION = 1
MALFORMED = "keypair_archive_malformed"
DUPLICATE = "keypair_archive_duplicate_key_id"


class Keys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`keypair.json`. `key_id` is the beginning of the public key."""

    ed25519_pubkey: str
    ed25519_seed: str
    x25519_pubkey: str
    x25519_privkey: str
    key_id: str
    created_at: str
    schema_version: int = 1

    def __repr__(self) -> str:
        return f"Keys({self.key_id!r})"

    @property
    def signing(self) -> SigningKey:
        return SigningKey(bytes.fromhex(self.ed25519_seed))

    @property
    def public_hex(self) -> str:
        return self.ed25519_pubkey

    def sign(self, text: bytes) -> bytes:
        """64 bytes, ed25519."""
        return self.signing.sign(text).signature


class Rotation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`keypair-next.json`: the key to come, and the meshes whose brokers have taken it."""

    keys: Keys
    taken: tuple[str, ...] = ()


class Archived(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ed25519_pubkey: str
    x25519_pubkey: str
    x25519_privkey: str
    key_id: str
    created_at: str
    rotated_out_at: str
    expires_at: str

    def __repr__(self) -> str:
        return f"Archived({self.key_id!r})"


class Archive(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`keypair-archive.json`, oldest first."""

    keys: tuple[Archived, ...] = ()
    max_archived_keys: int = 8
    schema_version: int = ARCHIVE_VERSION


class BadKeys(Exception):
    """What is wrong with a stored key or archive: a word for the log."""


def make(created_at: str) -> Keys:
    return _keys_of(SigningKey.generate(), created_at)


def read_keys(text: bytes) -> Keys:
    """Raises BadKeys for what is no key, or whose halves do not belong together."""
    try:
        return _checked(msgspec.json.decode(text, type=Keys))
    except msgspec.DecodeError as error:
        raise BadKeys("keypair_malformed") from error


def read_rotation(text: bytes) -> Rotation:
    """Raises BadKeys as well."""
    try:
        rotation = msgspec.json.decode(text, type=Rotation)
    except msgspec.DecodeError as error:
        raise BadKeys("keypair_malformed") from error
    _checked(rotation.keys)
    return rotation


def read_archive(text: bytes) -> Archive:
    """Raises BadKeys with the word of the contract."""
    try:
        archive = msgspec.json.decode(text, type=Archive)
        pairs = [(PrivateKey(bytes.fromhex(k.x25519_privkey)), k) for k in archive.keys]
    except (msgspec.DecodeError, ValueError, CryptoError, TypeError) as error:
        raise BadKeys(MALFORMED) from error
    if archive.schema_version != ARCHIVE_VERSION:
        raise BadKeys(MALFORMED)
    if any(bytes(private.public_key).hex() != key.x25519_pubkey for private, key in pairs):
        raise BadKeys(MALFORMED)
    if len({key.key_id for key in archive.keys}) != len(archive.keys):
        raise BadKeys(DUPLICATE)
    return archive


def archived(keys: Keys, rotated_out_at: str, expires_at: str) -> Archived:
    return Archived(
        keys.ed25519_pubkey,
        keys.x25519_pubkey,
        keys.x25519_privkey,
        keys.key_id,
        keys.created_at,
        rotated_out_at,
        expires_at,
    )


def add(archive: Archive, key: Archived, now: str, most: int) -> tuple[Archive, int]:
    """The archive with `key`, without what is over; and how many gave way before their time."""
    others = [one for one in archive.keys if one.key_id != key.key_id]
    kept = [one for one in (*others, key) if one.expires_at > now]
    surplus = max(0, len(kept) - most)
    return Archive(tuple(kept[surplus:]), most), surplus


def without_expired(archive: Archive, now: str) -> Archive:
    kept = tuple(key for key in archive.keys if key.expires_at > now)
    return archive if len(kept) == len(archive.keys) else Archive(kept, archive.max_archived_keys)


def text_of(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def _checked(keys: Keys) -> Keys:
    try:
        again = _keys_of(keys.signing, keys.created_at)
    except (ValueError, CryptoError, TypeError) as error:
        raise BadKeys("keypair_malformed") from error
    if msgspec.structs.replace(again, schema_version=keys.schema_version) != keys:
        raise BadKeys("keypair_mismatch")
    return keys


def _keys_of(signing: SigningKey, created_at: str) -> Keys:
    public = signing.verify_key.encode().hex()
    private = signing.to_curve25519_private_key()
    return Keys(
        ed25519_pubkey=public,
        ed25519_seed=signing.encode().hex(),
        x25519_pubkey=bytes(private.public_key).hex(),
        x25519_privkey=bytes(private).hex(),
        key_id=public[:16],
        created_at=created_at,
    )
