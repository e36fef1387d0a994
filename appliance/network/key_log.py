"""Defines the relay's key log: entries in a hash chain, and the signed head. Pure.

    digest   SHA-256 over number, time, event, agent, key
    hash     SHA-256 over the hash before and the digest; the first entry follows 64 zeros
    head     the relay's signature over the last number and hash

A relay with a private directory shows only the digest for an agent that the caller may not see.
"""

import hashlib

from msgspec import Struct

from appliance.network.keys import AgentKey, AgentPublicKey

FIRST_HASH = "0" * 64  # before the first entry
ENTRIES_MAX = 500  # in one page
REVOKED, LOST = "revoked", "lost"


class KeyLogEntry(Struct, frozen=True, rename="camel", omit_defaults=True):
    """An entry. `digest`: instead of all other fields, for an agent that the caller may not
    see."""

    number: int
    hash: str
    at: str | None = None
    event: str | None = None
    agent: str | None = None
    public_key: str | None = None
    digest: str | None = None


class KeyLogHead(Struct, frozen=True, rename="camel"):
    """The last entry's number and hash, signed with the relay's own key."""

    number: int
    hash: str
    signature: str
    relay_key: str


def entry_digest(number: int, at: str, event: str, agent: str, key: str) -> str:
    return _sha256("agentlip-key-log-entry-v1", str(number), at, event, agent, key)


def next_hash(previous: str, digest: str) -> str:
    """Return the hash for an entry that follows the entry with the hash `previous`."""
    return _sha256("agentlip-key-log-v1", previous, digest)


def hash_entry(previous: str, entry: KeyLogEntry) -> str:
    """Return the hash that an entry must have."""
    digest = entry.digest
    if entry.agent is not None:
        digest = entry_digest(
            entry.number, entry.at or "", entry.event or "", entry.agent, entry.public_key or ""
        )
    return next_hash(previous, digest or "")


def sign_head(key: AgentKey, number: int, last_hash: str) -> KeyLogHead:
    signature = key.sign(_head_text(number, last_hash))
    return KeyLogHead(number, last_hash, signature, str(key.public))


def is_head_signed(head: KeyLogHead, key: AgentPublicKey) -> bool:
    """Return whether the relay's key made the head's signature."""
    return key.is_signed(_head_text(head.number, head.hash), head.signature)


def _head_text(number: int, last_hash: str) -> bytes:
    return f"agentlip-key-log-head-v1\n{number}\n{last_hash}".encode()


def _sha256(*lines: str) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
