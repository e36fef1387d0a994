"""Who is asking, and what they may do. Tokens are known by their SHA-256 only.

A scope is `<subsystem>:<verb>` (`hub:read`, `hub:post`, `metrics:read`); `admin`
covers all. Looking a token up means hashing it and finding the hash in a dictionary:
nothing compares secret text byte by byte.
"""

import hashlib
import sqlite3
from collections.abc import Iterable

import msgspec

ADMIN = "admin"
SERVER_TOKEN_ID = "server"
TOKENS_MAX = 10_000


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


def remember_server_token(connection: sqlite3.Connection, token: str, now_ms: int) -> None:
    """Make the token of `.agentlip/token` the one that may do everything."""
    connection.execute(
        "INSERT INTO tokens (id, name, hash, scopes, created_ms) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET hash = excluded.hash WHERE hash <> excluded.hash",
        (SERVER_TOKEN_ID, "the workspace's token", hash_token(token), f'["{ADMIN}"]', now_ms),
    )


def known_tokens(connection: sqlite3.Connection, now_ms: int) -> list[tuple[str, Principal]]:
    """(hash, principal) of every token in force."""
    rows = connection.execute(
        "SELECT hash, id, name, scopes FROM tokens WHERE revoked_ms IS NULL"
        " AND (expires_ms IS NULL OR expires_ms > ?) LIMIT ?",
        (now_ms, TOKENS_MAX),
    ).fetchall()
    return [
        (digest, Principal(id_, name, frozenset(msgspec.json.decode(scopes, type=list[str]))))
        for digest, id_, name, scopes in rows
    ]
