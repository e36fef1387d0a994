"""Turns an issuer's access token into a principal."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import jwt

from appliance.kernel.auth import (
    ISSUED,
    RESERVED_NAMES,
    RESERVED_PREFIXES,
    Principal,
    principal_of,
)
from appliance.oidc import metrics
from appliance.oidc.keys import IssuerKeys
from appliance.oidc.settings import OidcSettings
from appliance.oidc.wire import MCP, METADATA, AccessTokenRefused, IssuerUnreachable

NAME_CHARS_MAX = 100  # as for tokens
LEEWAY_SECONDS = 30
REQUIRED = ("exp", "iss", "aud", "sub")

REASONS: tuple[tuple[type[Exception], str], ...] = (
    (jwt.ExpiredSignatureError, "time"),
    (jwt.ImmatureSignatureError, "time"),
    (jwt.InvalidIssuerError, "issuer"),
    (jwt.InvalidAudienceError, "audience"),
    (jwt.InvalidAlgorithmError, "algorithm"),
    (jwt.InvalidSignatureError, "signature"),
)


class AccessTokens:
    """Verifies access tokens for `path`. `challenge`: where a client without one gets it."""

    path = MCP

    def __init__(self, settings: OidcSettings, keys: IssuerKeys) -> None:
        self._settings = settings
        self._keys = keys
        self._audiences = [settings.resource, *settings.audiences]
        self._grants = {grant.value: grant.scopes for grant in settings.grants}
        origin = settings.resource.removesuffix(MCP)
        self.challenge = f'resource_metadata="{origin}{METADATA}{MCP}"'

    def verify(self, token: str) -> Principal:
        """Return the token's principal. Raises AccessTokenRefused and IssuerUnreachable."""
        try:
            principal = self._principal(self._claims(token))
        except AccessTokenRefused as error:
            metrics.tokens.labels(error.details["reason"]).inc()
            raise
        except IssuerUnreachable:
            metrics.tokens.labels("unreachable").inc()
            raise
        metrics.tokens.labels("accepted").inc()
        return principal

    def _claims(self, token: str) -> dict[str, Any]:
        return verify_claims(token, self._keys, self._settings.issuer, self._audiences)

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        settings = self._settings
        name = claims.get(settings.name_claim)
        if not is_name(name):
            raise refusal_for("name")
        values = values_of(claims.get(settings.grants_claim))
        scopes = [scope for value in values for scope in self._grants.get(value, ())]
        until_ms = (int(claims["exp"]) + LEEWAY_SECONDS) * 1000
        id_ = subject_id(settings.issuer, claims)
        return principal_of(id_, str(name), scopes, ISSUED, until_ms)


def verify_claims(
    token: str, keys: IssuerKeys, issuer: str, audiences: Sequence[str]
) -> dict[str, Any]:
    """Return a verified token's claims. Raises AccessTokenRefused and IssuerUnreachable."""
    try:
        header = jwt.get_unverified_header(token)
        key = keys.find(header.get("kid"))
        if key is None:
            raise refusal_for("key")
        return jwt.decode(
            token, key.key, algorithms=list(key.algorithms), audience=list(audiences),
            issuer=issuer, leeway=LEEWAY_SECONDS, options={"require": list(REQUIRED)},
        )  # fmt: skip
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError, OverflowError) as error:
        raise refusal_for(_reason(error)) from None


def subject_id(issuer: str, claims: Mapping[str, Any]) -> str:
    """Return the id that an issuer's subject has here."""
    digest = hashlib.sha256(f"{issuer} {claims['sub']}".encode("utf-8", "surrogatepass"))
    return f"oidc-{digest.hexdigest()[:32]}"


def refusal_for(reason: str) -> AccessTokenRefused:
    return AccessTokenRefused(details={"reason": reason})


def _reason(error: Exception) -> str:
    return next((reason for kind, reason in REASONS if isinstance(error, kind)), "malformed")


def is_name(name: Any) -> bool:
    return (
        isinstance(name, str)
        and 0 < len(name) <= NAME_CHARS_MAX
        and name.isprintable()
        and name not in RESERVED_NAMES
        and not name.startswith(RESERVED_PREFIXES)
    )


def values_of(claim: Any) -> list[str]:
    """Return a claim's values: a list's texts, or a text's words."""
    values = claim.split() if isinstance(claim, str) else claim
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []
