"""Implements the token verbs: list, create, revoke, rotate. Methods return when the change is in
effect."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from appliance.declared_scopes import DECLARED_SCOPES
from appliance.kernel.auth import (
    ADMIN,
    RESERVED_NAMES,
    RESERVED_PREFIXES,
    SERVER_TOKEN_ID,
    Principal,
    TokenBook,
    hash_token,
    principal_of,
    remember_server_token,
)
from appliance.kernel.blank import is_blank, is_printable
from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError, Invalid
from appliance.kernel.ids import prefixed_token
from appliance.kernel.store_errors import StoreReadOnly
from appliance.tokens import queries, wire, writes
from appliance.workspace.datadir import DataDir

T = TypeVar("T")
ALL = wire.TokensQuery()


class TokenStore(Protocol):
    """The Store in a running hub, or in a stopped one."""

    def write(self, function: Callable[..., T], *args: Any) -> T: ...
    def read(self, function: Callable[..., T], *args: Any) -> T: ...


class Tokens:
    """The token verbs. `book` has every valid token; `fixed` are the settings' tokens, which are
    always valid."""

    def __init__(
        self,
        store: TokenStore,
        book: TokenBook,
        datadir: DataDir,
        clock: Clock,
        fixed: Sequence[tuple[str, Principal]] = (),
    ) -> None:
        self._store = store
        self.book = book
        self._datadir = datadir
        self._clock = clock
        self._grantable = DECLARED_SCOPES
        self._fixed = list(fixed)
        self._rotating = False
        token = datadir.read_token()
        if token and store.read(queries.server_hash) != hash_token(token):
            try:
                store.write(remember_server_token, token, clock.now_ms())
            except StoreReadOnly:  # valid for this process only
                server = principal_of(SERVER_TOKEN_ID, "the workspace's token", [ADMIN])
                self._fixed.append((hash_token(token), server))
        self.refresh()

    def list_all(self, query: wire.TokensQuery = ALL) -> wire.TokenList:
        return self._store.read(queries.tokens, self._clock.now_ms(), query.after, query.limit)

    def create(self, command: wire.CreateToken) -> wire.TokenIssued:
        check_new(command, self._grantable)
        secret = prefixed_token()
        token = self._store.write(writes.create, command, hash_token(secret))
        self.refresh()
        return wire.TokenIssued(token, secret)

    def revoke(self, token_id: str) -> wire.TokenRevoked:
        token = self._store.write(writes.revoke, token_id)
        self.refresh()
        return wire.TokenRevoked(token)

    def rotate(self, token_id: str, command: wire.RotateToken) -> wire.TokenIssued:
        grace = command.grace_seconds
        grace_ms = int((wire.GRACE_SECONDS if grace is None else grace) * 1000)
        if token_id != SERVER_TOKEN_ID:
            return self._replace_secret(token_id, grace_ms)[0]
        # One at a time, or else the token file could get the older secret.
        if self._rotating:
            raise wire.TokenRotationRunning
        self._rotating = True
        try:
            issued, former_hash = self._replace_secret(token_id, grace_ms)
            self._publish_secret(issued.secret, former_hash)
        finally:
            self._rotating = False
        return issued

    def _replace_secret(self, token_id: str, grace_ms: int) -> tuple[wire.TokenIssued, str]:
        """Return the token with its new secret, which is valid, and the former secret's hash."""
        secret = prefixed_token()
        token, former_hash = self._store.write(
            writes.rotate, token_id, hash_token(secret), grace_ms
        )
        self.refresh()
        return wire.TokenIssued(token, secret), former_hash

    def _publish_secret(self, secret: str, former_hash: str) -> None:
        try:
            self._datadir.write_private(self._datadir.token_file, secret + "\n")
        except ApplianceError:
            self._store.write(writes.restore_secret, SERVER_TOKEN_ID, former_hash)
            self.refresh()
            raise
        server = self._datadir.read_server()
        if server is not None:
            server_file = msgspec.structs.replace(server, auth_token=secret)
            text = msgspec.json.format(msgspec.json.encode(server_file), indent=2).decode()
            self._datadir.write_private(self._datadir.server_file, text + "\n")

    def refresh(self) -> None:
        entries = self._store.read(queries.in_force, self._clock.now_ms())
        self.book.replace([*entries, *self._fixed])


def check_new(command: wire.CreateToken, grantable: frozenset[str]) -> None:
    name = command.name
    if not is_printable(name) or name != name.strip() or is_blank(name):
        raise Invalid(
            "a token's name must be one printable line without surrounding whitespace",
            details={"field": "name"},
        )
    if name in RESERVED_NAMES or name.startswith(RESERVED_PREFIXES):
        raise Invalid(
            "that token name is reserved",
            details={"field": "name"},
            hint="use another name: agentlip token create --name NAME",
        )
    if any("\0" in sender or is_blank(sender) for sender in command.senders or ()):
        raise Invalid(
            "a sender name must have a visible character and no U+0000",
            details={"field": "senders"},
        )
    wire.check_scopes(command.scopes, grantable)
