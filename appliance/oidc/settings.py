"""Defines [oidc]: the issuer, whose access tokens `/mcp` accepts, and who signs people in."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from appliance.kernel.config import BadSettings, secret

_LOOPBACK = r"http://(127\.0\.0\.1|localhost|\[::1\])"
Url = Annotated[str, Meta(max_length=500, pattern=rf"^((https://[^/?#\s]+|{_LOOPBACK})[^?#\s]*)?$")]
Claim = Annotated[str, Meta(min_length=1, max_length=100)]


class OidcGrantSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[oidc.grants]], [[oidc.people]]: the scopes that a value in the claim gives."""

    value: str
    scopes: tuple[str, ...]


class OidcSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[oidc]: an OpenID Connect issuer: access tokens from hosted MCP clients, and people's sign-in
    to the web UI."""

    issuer: Url = ""
    """the issuer's URL, exactly as in its tokens' `iss`. Empty: only the appliance's own tokens
    are accepted."""

    resource: Url = ""
    """public URL of `/mcp`, which the tokens' `aud` must contain"""

    audiences: Annotated[tuple[str, ...], Meta(max_length=10)] = ()
    """more accepted values in `aud`, for issuers whose audiences are not URLs"""

    name_claim: Claim = "sub"
    """claim that contains the principal's name, which gives access to the inbox with that name. Use
    a claim that only the issuer's operator can set."""

    grants_claim: Claim = "scope"
    """claim whose values are looked up in `grants`: a list, or a text with spaces"""

    grants: Annotated[tuple[OidcGrantSettings, ...], Meta(max_length=100)] = ()
    """scopes for each value of `grants_claim`; other values grant nothing"""

    client_id: Annotated[str, Meta(max_length=200)] = ""
    """this appliance's client at the issuer. Empty: people don't sign in with the issuer."""

    client_secret_file: str | None = None
    """file with the client's secret; without one, the client is a public client with PKCE"""

    url: Url = ""
    """this appliance's address in a browser; the redirect URI is this address with `/ui/`"""

    sign_in_scope: Annotated[str, Meta(max_length=200)] = "openid email profile"
    """scope in the sign-in request; some issuers need `groups` too"""

    person_claim: Claim = "email"
    """claim in the ID token that contains the person's name here, which gives access to the inbox
    with that name"""

    people_claim: Claim = "email"
    """claim in the ID token whose values are looked up in `people`"""

    people: Annotated[tuple[OidcGrantSettings, ...], Meta(max_length=100)] = ()
    """scopes for each value in `people_claim`: an address, a group, or `@example.com` for every
    address there; other people can't sign in"""

    def check_given(self, _given: Mapping[str, Any]) -> None:
        if bool(self.resource) != bool(self.grants) or (
            self.issuer and not (self.grants or self.client_id)
        ):
            raise BadSettings(
                "settings: oidc.issuer needs oidc.resource and [[oidc.grants]], or oidc.client_id",
                hint="docs/how-to/mcp.md and docs/how-to/use-the-ui.md have examples",
            )
        if self.client_id and not (self.issuer and self.url and self.people):
            raise BadSettings(
                "settings: oidc.client_id needs oidc.issuer, oidc.url and [[oidc.people]]",
                hint="docs/how-to/use-the-ui.md has an example",
            )
        if self.client_secret_file is not None:
            secret(self.client_secret_file, "oidc.client_secret_file")
