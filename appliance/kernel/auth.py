"""Who is asking, and what they may do. Tokens are known by their SHA-256 only.

A scope is `<subsystem>:<verb>` (`hub:read`, `hub:post`, `metrics:read`); `admin`
covers all. `hub:read@ch_…` allows the verb in that channel only. Looking a token up means
hashing it and finding the hash in a dictionary: nothing compares secret text byte by byte.
"""

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

ADMIN = "admin"
SERVER_TOKEN_ID = "server"
# What is recorded of others than tokens: no token is called so.
RESERVED_NAMES = frozenset({"anonymous", "owner", SERVER_TOKEN_ID})
RESERVED_PREFIXES = ("appliance:", "member:", "plugin:")
TOKENS_MAX = 10_000

Call = Callable[[], None]


class Executor(Protocol):
    """A connection, a transaction or a reader: what runs a statement."""

    @property
    def execute(self) -> Callable[..., sqlite3.Cursor]: ...


class Principal(msgspec.Struct, frozen=True):
    """A known caller. `id` is safe to log and is part of idempotency keys.

    channels    scope → the channels it is limited to; None for a caller without such limits
    until_ms    when the credential it came with ends by itself; None: never
    credential  which of a token's secrets was shown; not the secret, nor enough of its hash
    senders     the only sender names it may use; None: any
    """

    id: str
    name: str
    scopes: frozenset[str]
    channels: Mapping[str, frozenset[str]] | None = None
    until_ms: int | None = None
    credential: str = ""
    senders: frozenset[str] | None = None

    @property
    def label(self) -> str | None:
        """What is recorded with all that it creates: the token's name, or `server` for the
        workspace's own, or `owner`; None for nobody known."""
        if self.id in RESERVED_NAMES:
            return None if self.id == "anonymous" else self.id
        return self.name

    def allows(self, scope: str) -> bool:
        return scope in self.scopes or ADMIN in self.scopes

    def channels_for(self, scope: str) -> frozenset[str] | None:
        """The only channels in which `scope` holds; None: all."""
        return None if self.channels is None else self.channels.get(scope)


ANONYMOUS = Principal("anonymous", "anonymous", frozenset())
OWNER = Principal("owner", "this user, by the socket's file", frozenset({ADMIN}))


class TokenBook:
    """Hashes of the tokens in force, and whose they are. Replaced whole, read often.

    Who keeps serving one request for long (a socket, a stream) asks to be told by `watch`.
    """

    def __init__(self, entries: Iterable[tuple[str, Principal]] = ()) -> None:
        self.used: set[str] = set()  # ids seen since somebody last emptied it
        self._watches: dict[int, tuple[Principal, Call]] = {}
        self._last_watch = 0
        self._lent: dict[str, Principal] = {}
        self._take(entries)

    def replace(self, entries: Iterable[tuple[str, Principal]]) -> None:
        self._take(entries)
        self.end(0)

    def lend(self, token: str, principal: Principal, most: int) -> None:
        """A credential of this process alone, until its time is over; whatever `replace` does.
        At most so many at once: the oldest ends for a new one."""
        while len(self._lent) >= max(1, most):
            del self._lent[next(iter(self._lent))]
        self._lent[hash_token(token)] = principal

    def find(self, token: str) -> Principal | None:
        digest = hash_token(token)
        principal = self._principals.get(digest) or self._lent.get(digest)
        if principal is not None:
            self.used.add(principal.id)
        return principal

    def in_force(self, principal: Principal, now_ms: int) -> bool:
        """Whether that credential still opens what it opened."""
        if principal is ANONYMOUS or principal is OWNER:
            return True
        current = self._by_credential.get((principal.id, principal.credential))
        if current is None and principal in self._lent.values():
            current = principal
        return current is not None and not is_over(current, now_ms)

    def watch(self, principal: Principal, over: Call) -> Call:
        """Have `over` called once the credential is no longer in force; the way to stop that.

        It may have ended between being found and being watched: then at once.
        """
        self._last_watch += 1
        number = self._last_watch
        if not self.in_force(principal, 0):
            over()
        elif principal is not ANONYMOUS and principal is not OWNER:
            self._watches[number] = (principal, over)

        def stop() -> None:
            self._watches.pop(number, None)

        return stop

    def end(self, now_ms: int) -> int:
        """Tell those who watch a credential that is over; how many it were."""
        for digest in [d for d, lent in self._lent.items() if is_over(lent, now_ms)]:
            del self._lent[digest]
        ended = [
            number
            for number, (principal, _) in self._watches.items()
            if not self.in_force(principal, now_ms)
        ]
        for number in ended:
            watch = self._watches.pop(number, None)
            if watch is not None:
                watch[1]()
        return len(ended)

    def take_used(self) -> set[str]:
        """Ids of tokens that were shown since the last call, or are in use by a stream."""
        used, self.used = self.used, set()
        return used | {principal.id for principal, _ in self._watches.values()}

    def _take(self, entries: Iterable[tuple[str, Principal]]) -> None:
        self._principals = dict(entries)
        self._by_credential = {
            (principal.id, principal.credential): principal
            for principal in self._principals.values()
        }


def is_over(principal: Principal, now_ms: int) -> bool:
    return principal.until_ms is not None and principal.until_ms <= now_ms


def hash_token(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def principal_of(
    id_: str,
    name: str,
    scopes: Iterable[str],
    digest: str = "",
    until_ms: int | None = None,
    senders: Iterable[str] | None = None,
) -> Principal:
    """The caller that a stored token stands for. A scope without a channel beats one with."""
    whole: set[str] = set()
    limited: dict[str, set[str]] = {}
    for text in scopes:
        scope, at, channel_id = text.partition("@")
        if at:
            limited.setdefault(scope, set()).add(channel_id)
        else:
            whole.add(scope)
    channels = {
        scope: frozenset(ids)
        for scope, ids in limited.items()
        if scope not in whole and ADMIN not in whole
    }
    return Principal(
        id_, name, frozenset(whole | set(limited)), channels or None, until_ms, digest[:16],
        None if senders is None else frozenset(senders),
    )  # fmt: skip


_names = msgspec.json.Decoder(list[str]).decode


def remember_server_token(connection: Executor, token: str, now_ms: int) -> None:
    """Make the token of `.agentlip/token` the one that may do everything."""
    digest = hash_token(token)
    # A rotation may have been cut before the file was written: then the file is right.
    connection.execute("DELETE FROM retired WHERE hash = ?", (digest,))
    connection.execute(
        "INSERT INTO tokens (id, name, hash, scopes, created_ms) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET hash = excluded.hash WHERE hash <> excluded.hash",
        (SERVER_TOKEN_ID, "the workspace's token", digest, f'["{ADMIN}"]', now_ms),
    )


def known_tokens(connection: Executor, now_ms: int) -> list[tuple[str, Principal]]:
    """(hash, principal) of every secret in force: the tokens' own, and those just retired."""
    rows = connection.execute(
        "SELECT hash, id, name, scopes, expires_ms, senders FROM tokens WHERE revoked_ms IS NULL"
        " AND (expires_ms IS NULL OR expires_ms > ?1)"
        " UNION ALL"
        " SELECT r.hash, t.id, t.name, t.scopes,"
        " min(r.until_ms, ifnull(t.expires_ms, r.until_ms)), t.senders"
        " FROM retired AS r JOIN tokens AS t ON t.id = r.token_id WHERE t.revoked_ms IS NULL"
        " AND r.until_ms > ?1 AND (t.expires_ms IS NULL OR t.expires_ms > ?1) LIMIT ?2",
        (now_ms, 2 * TOKENS_MAX),
    ).fetchall()
    return [
        (
            digest,
            principal_of(
                id_,
                name,
                _names(scopes),
                digest,
                until_ms,
                None if senders is None else _names(senders),
            ),
        )
        for digest, id_, name, scopes, until_ms, senders in rows
    ]
