"""Tokens as a part of the appliance: the store `auth`, which is open whatever the roles."""

from collections.abc import Sequence

import msgspec

from appliance.kernel.auth import Principal, TokenBook
from appliance.kernel.clock import Clock
from appliance.kernel.datadir import DataDir
from appliance.kernel.log import Log
from appliance.kernel.route import Route
from appliance.kernel.store import Store
from appliance.kernel.subsystem import Subsystem
from appliance.kernel.writer import StoreSettings
from appliance.tokens import epoch, wire
from appliance.tokens.loops import TokenKeeper
from appliance.tokens.resources import routes
from appliance.tokens.service import Tokens
from appliance.tokens.settings import AuthSettings

STORE = "auth"


class TokensSubsystem(Subsystem):
    """`book` knows every token; `epoch` is that of the workspace's history."""

    name = "tokens"
    scopes = wire.SCOPES

    def __init__(
        self,
        settings: AuthSettings,
        store: StoreSettings,
        datadir: DataDir,
        clock: Clock,
        log: Log,
        fixed: Sequence[tuple[str, Principal]],
    ) -> None:
        """`fixed` are the tokens of settings."""
        self.book = TokenBook()
        # One reader, so that books come in order. Tokens can be revoked on a nearly full disk.
        own = msgspec.structs.replace(store, readers=1, free_bytes_min=0)
        self.store = Store(STORE, datadir.database(STORE), own, clock, log)
        self.stores = (self.store,)
        self._tokens = Tokens(self.store, self.book, datadir, clock, settings.grace_seconds, fixed)
        # With a full disk nothing can be written, and nothing has to be.
        found = self.store.read(epoch.stored)
        self.epoch: str = found or self.store.write(epoch.current)
        self.loops = (TokenKeeper(self.store, self.book, settings, clock, log),)

    def routes(self) -> list[Route]:
        return routes(self._tokens)
