"""Defines token requests, replies and errors."""

import re
from typing import Annotated

from msgspec import Meta, Struct

from appliance.kernel.errors import Conflict, Forbidden, Invalid, Missing, Unauthenticated
from appliance.kernel.scopes import Scopes

GRACE_SECONDS = 300.0  # hub spec §6.6
GRACE_SECONDS_MAX = 7 * 86_400
DAYS_MAX = 36_500
SCOPES_MAX = 1000
SENDERS_MAX = 50
INVITED_SECONDS_MAX = 7 * 86_400

SCOPES = Scopes(frozenset({"admin", "docs:read", "metrics:read"}))
"""Scopes that no subsystem defines: everything, the documentation, metrics."""

BY_CHANNEL = frozenset({"hub:read", "hub:post", "ask:answer"})
BY_MESH = frozenset({"inbox:read", "inbox:write"})
_CHANNEL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

Scope = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=300,  # the longest names a stream: streams:<256 characters>:subscribe
        description="`hub:read`, `hub:read@CHANNEL_ID`, `streams:PATTERN:enqueue`, …",
    ),
]


Senders = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=200)]],
    Meta(min_length=1, max_length=SENDERS_MAX, description="sender names that the token can use"),
]


class CreateToken(Struct, frozen=True):
    name: Annotated[str, Meta(min_length=1, max_length=100)]
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=SCOPES_MAX)]
    expires_days: Annotated[float, Meta(gt=0, le=DAYS_MAX)] | None = None
    senders: Senders | None = None


class RotateToken(Struct, frozen=True):
    grace_seconds: Annotated[float, Meta(ge=0, le=GRACE_SECONDS_MAX)] | None = None


class Token(Struct, frozen=True):
    """A token without its secret. `rotating_until`: until then the former secret is valid too.
    `senders`: sender names that the token can use; null: any."""

    id: str
    name: str
    scopes: list[str]
    state: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    rotating_until: str | None = None
    senders: list[str] | None = None


class TokensQuery(Struct, frozen=True):
    """A page. Without `limit`, only the bytes are limited."""

    after: Annotated[
        str,
        Meta(pattern=r"^([0-9]{1,15}\.[A-Za-z0-9_-]{1,64})?$",
             description="`next` from the previous page"),
    ] = ""  # fmt: skip
    limit: Annotated[int, Meta(ge=1, description="clamped to the maximum")] = 10_000


class TokenList(Struct, frozen=True):
    """A page, oldest first. `next` is `after` for the next page."""

    tokens: list[Token]
    has_more: bool = False
    next: str = ""


class TokenIssued(Struct, frozen=True):
    """A new token, in the only response that contains `secret`."""

    token: Token
    secret: str


class TokenRevoked(Struct, frozen=True):
    token: Token


class OpenSession(Struct, frozen=True):
    """A sign-in. `invite`: a one-time link's secret; without it, the request's token is used."""

    invite: Annotated[str, Meta(min_length=1, max_length=200)] | None = None


class CreateInvitation(Struct, frozen=True):
    """A new link. `token_id`: whose rights the link gives; without it, the caller's."""

    token_id: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    lifetime_seconds: Annotated[float, Meta(ge=1, le=INVITED_SECONDS_MAX)] = 900.0


class Invitation(Struct, frozen=True):
    """A link, in the only response that contains `secret`. The link is `/ui/#invite=SECRET`."""

    secret: str
    expires_at: str


class Who(Struct, frozen=True):
    """The caller and its rights. `session`: the browser session's id; null for a token."""

    session: str | None
    token_id: str
    token_name: str
    scopes: list[str]
    senders: list[str] | None
    expires_at: str | None


class SessionOpened(Who, frozen=True):
    """A new session. `page_secret`: the page sends it as `X-Agentlip-Request`; the cookie alone
    is not valid."""

    page_secret: str


class SignedIn(SessionOpened, frozen=True):
    """A session that an issuer opened. `token`: the person's token, which has no usable secret."""

    token: Token


class BrowserSession(Struct, frozen=True):
    """A browser's sign-in. `current`: the caller's. `last_used_at`: its token's last use, on any
    way."""

    id: str
    token_id: str
    token_name: str
    created_at: str
    expires_at: str
    current: bool = False
    last_used_at: str | None = None


class SessionsQuery(Struct, frozen=True):
    after: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{0,64}$",
                               description="`next` from the previous page")] = ""  # fmt: skip
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class SessionList(Struct, frozen=True):
    """A page, oldest first. `next` is `after` for the next page."""

    sessions: list[BrowserSession]
    has_more: bool = False
    next: str = ""


class SessionEnded(Struct, frozen=True):
    id: str


# Courier scopes: stream and view patterns, which the courier interprets.
_STREAM_SCOPE = re.compile(r"streams:[^@:]{1,256}:(enqueue|subscribe|admin)|views:[^@:]{1,64}:read")


class NoSuchToken(Missing):
    default_message = "token not found"
    default_hint = "agentlip token list"


class TokenNameTaken(Conflict):
    code = "ALREADY_EXISTS"
    default_message = "a valid token with that name exists"
    default_hint = "agentlip token rotate TOKEN_ID replaces its secret"


class TokenNotActive(Conflict):
    code = "TOKEN_OVER"
    default_message = "the token is revoked or expired"
    default_hint = "agentlip token create"


class TokenRotationRunning(Conflict):
    default_message = "another request is already rotating the workspace's token"
    default_hint = "read the new token from .agentlip/token"


class ServerTokenNotRevocable(Invalid):
    default_message = "the workspace's own token can't be revoked"
    default_hint = "agentlip token rotate server --grace 0"


class TooManyTokens(Invalid):
    code = "TOO_MANY_TOKENS"
    default_message = "the token limit is reached"
    default_hint = "agentlip token revoke ID"


class UnknownScope(Invalid):
    default_message = "unknown scope"
    default_hint = "docs/reference/tokens.md lists the scopes"


class PersonRevoked(Forbidden):
    code = "PERSON_REVOKED"
    default_message = "the operator has ended your access here"
    default_hint = "ask the operator"


class NoSuchSession(Missing):
    default_message = "session not found"
    default_hint = "agentlip token list"


class InviteRefused(Unauthenticated):
    guess = True
    code = "INVITE_REFUSED"
    default_message = "this link does not exist, was used already, or has expired"
    default_hint = "agentlip ui"


class CredentialRefused(Forbidden):
    code = "CREDENTIAL_REFUSED"
    default_message = "only a valid token for this workspace can sign in or invite"
    default_hint = "agentlip token list"


def check_scopes(scopes: list[str], grantable: frozenset[str]) -> None:
    """Raise UnknownScope for a scope that is not in `grantable`, or can't be limited that way."""
    for text in scopes:
        if _STREAM_SCOPE.fullmatch(text):
            continue
        scope, at, channel_id = text.partition("@")
        if scope not in grantable:
            raise UnknownScope(
                details={"scope": text}, hint="use one of: " + ", ".join(sorted(grantable))
            )
        if at and not (scope in BY_CHANNEL | BY_MESH and _CHANNEL_ID.fullmatch(channel_id)):
            raise UnknownScope(
                "only these scopes can be limited, by a channel id or a mesh name: "
                + ", ".join(sorted(BY_CHANNEL | BY_MESH)),
                details={"scope": text},
            )
