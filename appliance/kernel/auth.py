"""Principals and their scopes. Only the SHA-256 of a token is stored.

A scope is `<subsystem>:<verb>` (`hub:read`, `hub:post`, `metrics:read`); `admin`
covers all. `hub:read@ch_…` allows the verb in that channel only. A token is looked up by its hash
in a dictionary, so nothing compares secret text byte by byte.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping

import msgspec

from appliance.kernel.errors import Forbidden
from appliance.kernel.meta import Executor

ADMIN = "admin"
ANSWER = "ask:answer"
"""The scope of people, who answer questions (`hub/ask`)."""
SERVER_TOKEN_ID = "server"
# Principals that are not tokens. No token may have such a name.
RESERVED_NAMES = frozenset({"anonymous", "owner", SERVER_TOKEN_ID})
RESERVED_PREFIXES = ("appliance:", "job:", "member:", "plugin:")
TOKENS_MAX = 10_000
ISSUED = "issued"  # credential of a principal with an issuer's access token

Call = Callable[[], None]


class Principal(msgspec.Struct, frozen=True):
    """A known caller. `id` is safe to log and is part of idempotency keys.

    channels    scope → permitted channels; None for a caller without such limits
    until_ms    when its credential expires; None: never
    credential  which secret was used, as the beginning of its hash
    senders     the only permitted sender names; None: any
    session     the browser session's id that has these rights; empty: a token itself
    """

    id: str
    name: str
    scopes: frozenset[str]
    channels: Mapping[str, frozenset[str]] | None = None
    until_ms: int | None = None
    credential: str = ""
    senders: frozenset[str] | None = None
    session: str = ""

    @property
    def label(self) -> str | None:
        """Return the name recorded with what this principal creates: the token's name, `server`
        for the workspace's token, or `owner`; None for an anonymous caller."""
        if self.id in RESERVED_NAMES:
            return None if self.id == "anonymous" else self.id
        return self.name

    def allows(self, scope: str) -> bool:
        return scope in self.scopes or ADMIN in self.scopes

    def channels_for(self, scope: str) -> frozenset[str] | None:
        """Return the only channels for which `scope` is granted; None: all."""
        return None if self.channels is None else self.channels.get(scope)


ANONYMOUS = Principal("anonymous", "anonymous", frozenset())
OWNER = Principal("owner", "this user, by the socket's file", frozenset({ADMIN}))


class SenderNotAllowed(Forbidden):
    code = "SENDER_NOT_ALLOWED"
    default_message = "this token may not use that sender name"
    default_hint = "agentlip token list shows each token's allowed sender names"


def check_sender(name: str, senders: frozenset[str] | None) -> None:
    """Raise SenderNotAllowed for a name that is not in `senders`; None: any name."""
    if senders is not None and name not in senders:
        allowed = sorted(senders)
        raise SenderNotAllowed(
            details={"sender": name, "allowed": allowed},
            hint="this token's sender names: " + ", ".join(allowed),
        )


class TokenBook:
    """The valid tokens, by hash. Replaced as a whole when a token changes.

    Sockets and streams, which serve one request for a long time, register with `watch`.
    """

    def __init__(self, entries: Iterable[tuple[str, Principal]] = ()) -> None:
        self.used: set[str] = set()  # token ids used since the last `take_used`
        self._watches: dict[int, tuple[Principal, Call]] = {}
        self._last_watch = 0
        self._temporary: dict[str, Principal] = {}
        self._take(entries)

    def replace(self, entries: Iterable[tuple[str, Principal]]) -> None:
        self._take(entries)
        self.end(0)

    def add_temporary(self, token: str, principal: Principal, limit: int) -> None:
        """Add a credential that only this process knows, until expiry. `replace` keeps the
        credential. Above `limit` credentials, the oldest is removed."""
        while len(self._temporary) >= max(1, limit):
            del self._temporary[next(iter(self._temporary))]
        self._temporary[hash_token(token)] = principal

    def remove_temporary(self, token: str) -> None:
        self._temporary.pop(hash_token(token), None)
        self.end(0)

    def find(self, token: str) -> Principal | None:
        digest = hash_token(token)
        principal = self._principals.get(digest) or self._temporary.get(digest)
        if principal is not None:
            self.used.add(principal.id)
        return principal

    def known_names(self, names: Iterable[str]) -> frozenset[str]:
        """Return those of the names that a token has, or may use as a sender."""
        return self._names.intersection(names)

    def is_valid(self, principal: Principal, now_ms: int) -> bool:
        """Return whether the principal's credential is still valid."""
        if principal is ANONYMOUS or principal is OWNER:
            return True
        if principal.credential == ISSUED:
            return not is_expired(principal, now_ms)
        current = self._by_credential.get((principal.id, principal.credential))
        if current is None and principal in self._temporary.values():
            current = principal
        return current is not None and not is_expired(current, now_ms)

    def watch(self, principal: Principal, on_end: Call) -> Call:
        """Register `on_end`, which is called when the credential ends, and return a function that
        cancels the registration.

        If the credential ended before this call, `on_end` is called at once.
        """
        self._last_watch += 1
        number = self._last_watch
        if not self.is_valid(principal, 0):
            on_end()
        elif principal is not ANONYMOUS and principal is not OWNER:
            self._watches[number] = (principal, on_end)

        def stop() -> None:
            self._watches.pop(number, None)

        return stop

    def end(self, now_ms: int) -> int:
        """End expired credentials and call their watchers; returns how many."""
        for digest in [
            d for d, principal in self._temporary.items() if is_expired(principal, now_ms)
        ]:
            del self._temporary[digest]
        ended = [
            number
            for number, (principal, _) in self._watches.items()
            if not self.is_valid(principal, now_ms)
        ]
        for number in ended:
            watch = self._watches.pop(number, None)
            if watch is not None:
                watch[1]()
        return len(ended)

    def take_used(self) -> set[str]:
        """Return the ids for tokens that were used since the last call, or are in use by a
        stream."""
        used, self.used = self.used, set()
        return used | {principal.id for principal, _ in self._watches.values()}

    def _take(self, entries: Iterable[tuple[str, Principal]]) -> None:
        self._principals = dict(entries)
        self._names = frozenset(
            name
            for principal in self._principals.values()
            for name in (principal.senders or (principal.name,))
        )
        self._by_credential = {
            (principal.id, principal.credential): principal
            for principal in self._principals.values()
        }


def is_expired(principal: Principal, now_ms: int) -> bool:
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
    """Return a stored token's principal. A scope without a channel includes the scope with one."""
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
    """Store the token in `.agentlip/token`, which has the scope `admin`."""
    digest = hash_token(token)
    # A rotation may have been interrupted before the file was written; the file decides.
    connection.execute("DELETE FROM retired WHERE hash = ?", (digest,))
    connection.execute(
        "INSERT INTO tokens (id, name, hash, scopes, created_ms) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET hash = excluded.hash WHERE hash <> excluded.hash",
        (SERVER_TOKEN_ID, "the workspace's token", digest, f'["{ADMIN}"]', now_ms),
    )


def valid_tokens(connection: Executor, now_ms: int) -> list[tuple[str, Principal]]:
    """Return (hash, principal) for every valid secret, including recently retired ones."""
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
    return [(row[0], stored_principal(*row)) for row in rows]


def stored_principal(
    digest: str, id_: str, name: str, scopes: str, until_ms: int | None, senders: str | None
) -> Principal:
    """Return the principal for a row whose scopes and senders are JSON."""
    names = None if senders is None else _names(senders)
    return principal_of(id_, name, _names(scopes), digest, until_ms, names)
