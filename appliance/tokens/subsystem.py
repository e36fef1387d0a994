"""Adds tokens to the appliance: the store `auth`, which is open whatever roles are enabled."""

from collections.abc import Sequence

import msgspec

from appliance.host import Host
from appliance.kernel import meta
from appliance.kernel.auth import Principal, TokenBook
from appliance.kernel.ids import random_id
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem
from appliance.tokens import wire, writes
from appliance.tokens.loops import TokenMaintenance
from appliance.tokens.resources import routes, session_routes, sign_in_routes
from appliance.tokens.service import Tokens
from appliance.tokens.sessions import Sessions
from appliance.tokens.settings import AuthSettings
from appliance.web.sign_in import PeopleIssuer
from appliance.workspace import epochs

STORE = "auth"


class TokensNeeds(msgspec.Struct, frozen=True):
    """The needs. `fixed`: the settings' tokens. `people`: None without an issuer for people."""

    fixed: Sequence[tuple[str, Principal]]
    people: PeopleIssuer | None = None


class TokensSubsystem(Subsystem):
    """The tokens. `book` has every valid token; `epoch` is the workspace's epoch."""

    name = "tokens"
    sections = {"auth": AuthSettings}
    scopes = wire.SCOPES

    def __init__(self, host: Host, needs: TokensNeeds) -> None:
        clock, self._people = host.clock, needs.people
        self.book = TokenBook()
        # One reader, so that the book is replaced in order. Revoking works on a nearly full disk.
        self.store = host.open_store(STORE, {"free_bytes_min": 0})
        self.stores = (self.store,)
        self._tokens = Tokens(self.store, self.book, host.datadir, clock, needs.fixed)
        self._sessions = Sessions(self.store, self._tokens, clock)
        stored_epoch = self.store.read(meta.value, epochs.KEY)
        self.epoch = stored_epoch or random_id()
        # Not at every start: on a full disk a write would fail.
        if stored_epoch is None and not self.store.settings.read_only:
            self.store.write(writes.set_epoch, self.epoch)
        self.loops = (TokenMaintenance(self.store, self.book, clock, host.log),)

    def routes(self) -> list[Route]:
        sessions = self._sessions
        return [
            *routes(self._tokens), *session_routes(sessions),
            *sign_in_routes(sessions, self._people),
        ]  # fmt: skip
