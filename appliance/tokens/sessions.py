"""Signs browsers in: one-time links, and the sessions that links open."""

import msgspec

from appliance.kernel.auth import (
    ADMIN,
    ANONYMOUS,
    OWNER,
    SERVER_TOKEN_ID,
    Principal,
    hash_token,
)
from appliance.kernel.clock import DAY_MS, Clock, iso
from appliance.kernel.errors import Unauthenticated, refuse_scope
from appliance.kernel.ids import prefixed_token
from appliance.tokens import people, session_rows, wire
from appliance.tokens.service import Tokens, TokenStore

SESSION_MS = 30 * DAY_MS


class Sessions:
    """The session verbs. Methods return when the change is in effect, also for open sockets."""

    def __init__(self, store: TokenStore, tokens: Tokens, clock: Clock) -> None:
        self._store = store
        self._tokens = tokens
        self._clock = clock

    def invite(self, command: wire.CreateInvitation, caller: Principal) -> wire.Invitation:
        own = SERVER_TOKEN_ID if caller is OWNER else check_known(caller).id
        token_id = command.token_id or own
        if token_id != own and not caller.allows(ADMIN):
            raise refuse_scope(ADMIN)
        credential = caller.credential if token_id == caller.id else None
        secret = prefixed_token()
        until_ms = self._store.write(
            session_rows.insert, "link", token_id, credential, hash_token(secret),
            int(command.lifetime_seconds * 1000),
        )  # fmt: skip
        return wire.Invitation(secret, iso(until_ms))

    def open(self, caller: Principal, command: wire.OpenSession) -> tuple[wire.SessionOpened, str]:
        """Return the new session, and its cookie's secret. Both secrets together are valid."""
        cookie, page = prefixed_token(), prefixed_token()
        digest = hash_token(cookie + page)
        if command.invite is not None:
            link = hash_token(command.invite)
            self._store.write(session_rows.open_by_link, link, digest, SESSION_MS)
        elif caller.session:  # would never expire
            raise wire.CredentialRefused
        else:
            token_id, credential = check_known(caller).id, caller.credential
            self._store.write(session_rows.insert, "open", token_id, credential, digest, SESSION_MS)
        return self._show_opened(cookie, page), cookie

    def open_for(self, person: Principal) -> tuple[wire.SignedIn, str]:
        """Return a session for a person whom an issuer has signed in, and its cookie's secret."""
        cookie, page = prefixed_token(), prefixed_token()
        token = self._store.write(
            people.sign_in, person, hash_token(prefixed_token()), hash_token(cookie + page)
        )
        opened = self._show_opened(cookie, page)
        return wire.SignedIn(**msgspec.structs.asdict(opened), token=token), cookie

    def _show_opened(self, cookie: str, page: str) -> wire.SessionOpened:
        self._tokens.refresh()
        opened = who(self._tokens.book.find(cookie + page) or ANONYMOUS)
        return wire.SessionOpened(**msgspec.structs.asdict(opened), page_secret=page)

    def is_invited(self, command: wire.OpenSession) -> bool:
        """Return whether the request has a valid link's secret."""
        link, now_ms = hash_token(command.invite or ""), self._clock.now_ms()
        return bool(self._store.read(session_rows.has_link, link, now_ms))

    def list_all(self, query: wire.SessionsQuery, caller: Principal) -> wire.SessionList:
        now_ms = self._clock.now_ms()
        return self._store.read(
            session_rows.sessions, now_ms, _limit_of(caller), caller.session, query
        )

    def end(self, caller: Principal, session_id: str) -> wire.SessionEnded:
        self._store.write(session_rows.end, session_id, _limit_of(caller))
        self._tokens.refresh()
        return wire.SessionEnded(session_id)


def who(caller: Principal) -> wire.Who:
    check_known(caller)
    return wire.Who(
        caller.session or None, caller.id, caller.name, sorted(caller.scopes),
        None if caller.senders is None else sorted(caller.senders),
        None if caller.until_ms is None else iso(caller.until_ms),
    )  # fmt: skip


def check_known(caller: Principal) -> Principal:
    if caller is ANONYMOUS:
        raise Unauthenticated
    return caller


def _limit_of(caller: Principal) -> str | None:
    """Return the token whose sessions the caller may see and end; None: all."""
    return None if caller.allows(ADMIN) else check_known(caller).id
