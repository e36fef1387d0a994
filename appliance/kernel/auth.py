"""Who is asking, and what they may do. Tokens are known by their SHA-256 only.

A scope is `<subsystem>:<verb>` (`hub:read`, `hub:post`, `metrics:read`); `admin`
covers all. Looking a token up means hashing it and finding the hash in a dictionary:
nothing compares secret text byte by byte.
"""

import hashlib
from collections.abc import Iterable

import msgspec

ADMIN = "admin"


class Principal(msgspec.Struct, frozen=True):
    """A known caller. `id` is safe to log and is part of idempotency keys."""

    id: str
    name: str
    scopes: frozenset[str]

    def allows(self, scope: str) -> bool:
        return scope in self.scopes or ADMIN in self.scopes


ANONYMOUS = Principal("anonymous", "anonymous", frozenset())


class TokenBook:
    """Hashes of the tokens in force, and whose they are. Replaced whole, read often."""

    def __init__(self, entries: Iterable[tuple[str, Principal]] = ()) -> None:
        self._principals = dict(entries)

    def replace(self, entries: Iterable[tuple[str, Principal]]) -> None:
        self._principals = dict(entries)

    def find(self, token: str) -> Principal | None:
        return self._principals.get(hash_token(token))


def hash_token(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
