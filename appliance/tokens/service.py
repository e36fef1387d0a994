"""The verbs: list, create, revoke, rotate. Each returns when it is stored and in force."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from appliance.kernel.auth import (
    RESERVED_NAMES,
    RESERVED_PREFIXES,
    SERVER_TOKEN_ID,
    Principal,
    TokenBook,
    hash_token,
    remember_server_token,
)
from appliance.kernel.blank import is_blank
from appliance.kernel.clock import Clock
from appliance.kernel.datadir import DataDir
from appliance.kernel.errors import ApplianceError, Invalid
from appliance.kernel.ids import marked_token
from appliance.tokens import queries, wire, writes
from appliance.tokens.declared import declared_scopes

T = TypeVar("T")
DAY_MS = 86_400_000
ALL = wire.TokensQuery()


class Runs(Protocol):
    """The running hub's Store, or the file alone while no hub runs."""

    def write(self, function: Callable[..., T], *args: Any) -> T: ...
    def read(self, function: Callable[..., T], *args: Any) -> T: ...


class Tokens:
    """`fixed` are secrets from elsewhere (settings) that stay in the book whatever happens."""

    def __init__(
        self,
        store: Runs,
        book: TokenBook,
        datadir: DataDir,
        clock: Clock,
        grace_seconds: float,
        fixed: Sequence[tuple[str, Principal]] = (),
    ) -> None:
        self._store = store
        self._book = book
        self._datadir = datadir
        self._clock = clock
        self._grace_seconds = grace_seconds
        self._grantable = declared_scopes()
        self._fixed = list(fixed)
        self._rotating = False
        token = datadir.read_token()
        if token and store.read(queries.server_hash) != hash_token(token):
            store.write(remember_server_token, token, clock.now_ms())
        self._refresh()

    def list_all(self, query: wire.TokensQuery = ALL) -> wire.TokenList:
        return self._store.read(queries.tokens, self._clock.now_ms(), query.after, query.limit)

    def create(self, command: wire.CreateToken) -> wire.TokenIssued:
        scopes, senders = check_new(command, self._grantable)
        lifetime_ms = None
        if command.expires_days is not None:
            lifetime_ms = max(1, int(command.expires_days * DAY_MS))
        secret = marked_token()
        token = self._store.write(
            writes.create, command.name, scopes, hash_token(secret), lifetime_ms, senders
        )
        self._refresh()
        return wire.TokenIssued(token, secret)

    def revoke(self, token_id: str) -> wire.TokenRevoked:
        token = self._store.write(writes.revoke, token_id)
        self._refresh()
        return wire.TokenRevoked(token)

    def rotate(self, token_id: str, command: wire.RotateToken) -> wire.TokenIssued:
        grace = command.grace_seconds
        grace_ms = int((self._grace_seconds if grace is None else grace) * 1000)
        if token_id == SERVER_TOKEN_ID:
            return self._rotate_server(grace_ms)
        secret = marked_token()
        token, _ = self._store.write(writes.rotate, token_id, hash_token(secret), grace_ms)
        self._refresh()
        return wire.TokenIssued(token, secret)

    def _rotate_server(self, grace_ms: int) -> wire.TokenIssued:
        """One at a time: else the file of the first could be the last one written."""
        if self._rotating:
            raise wire.RotationRuns
        self._rotating = True
        try:
            secret = marked_token()
            token, former = self._store.write(
                writes.rotate, SERVER_TOKEN_ID, hash_token(secret), grace_ms
            )
            self._refresh()  # both are in force before anybody can read the new one
            self._hand_out(secret, former)
        finally:
            self._rotating = False
        return wire.TokenIssued(token, secret)

    def _hand_out(self, secret: str, former: str) -> None:
        try:
            self._datadir.write_private(self._datadir.token_file, secret + "\n")
        except ApplianceError:
            self._store.write(writes.take_back, SERVER_TOKEN_ID, former)
            self._refresh()
            raise
        server = self._datadir.read_server()
        if server is not None:
            told = msgspec.structs.replace(server, auth_token=secret)
            text = msgspec.json.format(msgspec.json.encode(told), indent=2).decode()
            self._datadir.write_private(self._datadir.server_file, text + "\n")

    def _refresh(self) -> None:
        entries = self._store.read(queries.in_force, self._clock.now_ms())
        self._book.replace([*entries, *self._fixed])


def check_new(
    command: wire.CreateToken, grantable: frozenset[str]
) -> tuple[list[str], list[str] | None]:
    """Scopes and sender names, each once and in order."""
    name = command.name
    if not name.isprintable() or name != name.strip() or is_blank(name):
        raise Invalid(
            "a token's name is one printable line without blanks around it",
            details={"field": "name"},
        )
    if name in RESERVED_NAMES or name.startswith(RESERVED_PREFIXES):
        raise Invalid(
            "that token name is reserved",
            details={"field": "name"},
            hint="use another name: agentlip token create --name NAME",
        )
    senders = command.senders
    if senders is not None and any("\0" in one or is_blank(one) for one in senders):
        raise Invalid(
            "a sender name needs at least one visible character and no U+0000",
            details={"field": "senders"},
        )
    return wire.check_scopes(command.scopes, grantable), senders and sorted(set(senders))
