"""Defines [oidc]: the issuer whose access tokens are accepted at `/mcp`."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from appliance.kernel.config import BadSettings

_LOOPBACK = r"http://(127\.0\.0\.1|localhost|\[::1\])"
Url = Annotated[str, Meta(max_length=500, pattern=rf"^((https://[^/?#\s]+|{_LOOPBACK})[^?#\s]*)?$")]
Claim = Annotated[str, Meta(min_length=1, max_length=100)]


class OidcGrantSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[oidc.grants]]: the scopes that a value in the claim `grants_claim` gives."""

    value: str
    scopes: tuple[str, ...]


class OidcSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[oidc]: an OpenID Connect issuer's access tokens, for hosted MCP clients."""

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

    def check_given(self, _given: Mapping[str, Any]) -> None:
        if self.issuer and not (self.resource and self.grants):
            raise BadSettings(
                "settings: oidc.issuer needs oidc.resource and [[oidc.grants]]",
                hint="docs/how-to/mcp.md has an example",
            )
