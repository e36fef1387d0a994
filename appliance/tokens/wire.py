"""What crosses the door about tokens: requests, replies, errors."""

import re
from typing import Annotated

from msgspec import Meta, Struct

from appliance.kernel.errors import Conflict, Invalid, Missing
from appliance.kernel.scopes import Scopes

GRACE_SECONDS_MAX = 7 * 86_400
DAYS_MAX = 36_500
SCOPES_MAX = 1000
SENDERS_MAX = 50

SCOPES = Scopes(frozenset({"admin", "docs:read", "metrics:read"}))
"""Of no subsystem: everything, the documentation, metrics."""

BY_CHANNEL = frozenset({"hub:read", "hub:post"})
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
    Meta(min_length=1, max_length=SENDERS_MAX, description="the only sender names of its messages"),
]


class CreateToken(Struct, frozen=True):
    name: Annotated[str, Meta(min_length=1, max_length=100)]
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=SCOPES_MAX)]
    expires_days: Annotated[float, Meta(gt=0, le=DAYS_MAX)] | None = None
    senders: Senders | None = None


class RotateToken(Struct, frozen=True):
    grace_seconds: Annotated[float, Meta(ge=0, le=GRACE_SECONDS_MAX)] | None = None


class Token(Struct, frozen=True):
    """A token without its secret. `rotating_until`: until then a former secret opens as well.
    `senders`: the only sender names of its messages; null: any."""

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
    """Without a limit, as many as a page holds in bytes."""

    after: Annotated[
        str,
        Meta(pattern=r"^([0-9]{1,15}\.[A-Za-z0-9_-]{1,64})?$",
             description="`next` of the page before"),
    ] = ""  # fmt: skip
    limit: Annotated[int, Meta(ge=1, description="clamped to the maximum")] = 10_000


class TokenList(Struct, frozen=True):
    """The oldest first. `next`: what to ask for after this page."""

    tokens: list[Token]
    has_more: bool = False
    next: str = ""


class TokenIssued(Struct, frozen=True):
    """The only time that `secret` is told."""

    token: Token
    secret: str


class TokenRevoked(Struct, frozen=True):
    token: Token


# The courier's: patterns of streams and views. Its own code says what they open.
_OF_STREAMS = re.compile(r"streams:[^@:]{1,256}:(enqueue|subscribe|admin)|views:[^@:]{1,64}:read")


class NoSuchToken(Missing):
    sentence = "token not found"
    advice = "agentlip token list"


class TokenNameTaken(Conflict):
    code = "ALREADY_EXISTS"
    sentence = "a token with that name is in force"
    advice = "agentlip token rotate ID gives it a new secret; its id is in details"


class TokenOver(Conflict):
    code = "TOKEN_OVER"
    sentence = "the token is revoked or expired"
    advice = "agentlip token create"


class RotationRuns(Conflict):
    sentence = "the workspace's token is being rotated by somebody else"
    advice = "look into .agentlip/token"


class ServerTokenStays(Invalid):
    sentence = "the workspace's own token can't be revoked"
    advice = "agentlip token rotate server --grace 0"


class TooManyTokens(Invalid):
    code = "TOO_MANY_TOKENS"
    sentence = "there are too many tokens"
    advice = "agentlip token revoke ID"


class UnknownScope(Invalid):
    sentence = "there is no such scope"
    advice = "docs/security.md lists the scopes"


def check_scopes(scopes: list[str], grantable: frozenset[str]) -> list[str]:
    """The scopes, each once and in order; raises UnknownScope for one that is not grantable."""
    for text in scopes:
        if _OF_STREAMS.fullmatch(text):
            continue
        scope, at, channel_id = text.partition("@")
        if scope not in grantable:
            raise UnknownScope(
                details={"scope": text}, hint="scopes: " + ", ".join(sorted(grantable))
            )
        if at and scope not in BY_CHANNEL | BY_MESH:
            raise UnknownScope(
                "this scope can't be limited to a channel", details={"scope": text},
                hint="limited can be: " + ", ".join(sorted(BY_CHANNEL | BY_MESH)),
            )  # fmt: skip
        if at and not _CHANNEL_ID.fullmatch(channel_id):
            raise UnknownScope("what stands behind @ is no channel's id", details={"scope": text})
    return sorted(set(scopes))
