"""Defines the issuer's documents, our metadata and the errors."""

from typing import Any

from msgspec import Struct

from appliance.kernel.errors import Missing, Unauthenticated, Unavailable

METADATA = "/.well-known/oauth-protected-resource"
MCP = "/mcp"


class AccessTokenRefused(Unauthenticated):
    code = "ACCESS_TOKEN_REFUSED"
    default_message = "the issuer's access token is not valid here"
    default_hint = "sign in again; the operator finds the reason in `agentlip_oidc_tokens_total`"


class IssuerUnreachable(Unavailable):
    code = "ISSUER_UNREACHABLE"
    default_message = "the issuer's keys can't be fetched, so its tokens can't be verified"
    default_hint = "for the operator: check `oidc.issuer`, and that this machine reaches it"


class NoIssuer(Missing):
    code = "NO_ISSUER"
    default_message = "no issuer's access tokens are accepted here"
    default_hint = "use this appliance's token, or set `oidc.issuer`"


class Discovery(Struct, frozen=True):
    """The fields used from the issuer's configuration."""

    issuer: str
    jwks_uri: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""


class IssuedTokens(Struct, frozen=True):
    """The field used from the token endpoint's response."""

    id_token: str


class KeySet(Struct, frozen=True):
    """The issuer's keys, as JWKs."""

    keys: list[dict[str, Any]]


class ResourceMetadata(Struct, frozen=True):
    """Where a client gets an access token for `/mcp`, as in RFC 9728."""

    resource: str
    authorization_servers: list[str]
    scopes_supported: list[str]
    bearer_methods_supported: tuple[str, ...] = ("header",)
    resource_name: str = "Agentlip"
