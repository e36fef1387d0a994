"""The tokens subsystem: the store `auth`, which is open whatever roles are enabled."""

from collections.abc import Sequence

import msgspec

from appliance.kernel import meta
from appliance.kernel.auth import Principal, TokenBook
from appliance.kernel.clock import Clock
from appliance.kernel.ids import random_id
from appliance.kernel.log import Log
from appliance.kernel.route import Route
from appliance.kernel.store import Store
from appliance.kernel.subsystem import Subsystem
from appliance.kernel.writer import StoreSettings
from appliance.kernel.writerprocess import WriterProcess
from appliance.tokens import epoch, wire
from appliance.tokens.loops import TokenMaintenance
from appliance.tokens.resources import routes
from appliance.tokens.service import Tokens
from appliance.tokens.settings import AuthSettings
from appliance.workspace.datadir import DataDir

STORE = "auth"


class TokensSubsystem(Subsystem):
    """`book` has every valid token; `epoch` is the workspace's epoch."""

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
        writers: WriterProcess | None = None,
    ) -> None:
        """`fixed` are the tokens of settings; `writers` is the process that writes."""
        self.book = TokenBook()
        # One reader, so that the book is replaced in order. Revoking works on a nearly full disk.
        store_settings = msgspec.structs.replace(store, readers=1, free_bytes_min=0)
        self.store = Store(
            STORE, datadir.database(STORE), store_settings, clock, log, writers=writers
        )
        self.stores = (self.store,)
        self._tokens = Tokens(self.store, self.book, datadir, clock, settings.grace_seconds, fixed)
        # Read first: on a full disk a write would fail.
        stored_epoch = self.store.read(meta.value, epoch.KEY)
        self.epoch: str = stored_epoch or (
            random_id() if store.read_only else self.store.write(epoch.current)
        )
        self.loops = (TokenMaintenance(self.store, self.book, settings, clock, log),)

    def routes(self) -> list[Route]:
        return routes(self._tokens)
