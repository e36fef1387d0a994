"""Serves the metadata by which a client finds the issuer (RFC 9728)."""

from typing import Any

import falcon

from appliance.kernel.route import OPEN, Operation, Route
from appliance.oidc.settings import OidcSettings
from appliance.oidc.wire import MCP, METADATA, NoIssuer, ResourceMetadata
from appliance.web.media import reply
from appliance.web.responders import Responders


def routes(settings: OidcSettings) -> list[Route]:
    """Return both paths: the root's, and the one that RFC 9728 derives from `/mcp`."""
    operation = Operation(
        OPEN, "Show which issuer's access tokens are accepted (RFC 9728)",
        reply=ResourceMetadata, errors=(NoIssuer,),
    )  # fmt: skip

    def show(_req: Any, resp: falcon.Response) -> None:
        reply(resp, describe(settings))

    return [
        Route(path, Responders(get=show), {"GET": operation}) for path in (METADATA, METADATA + MCP)
    ]


def describe(settings: OidcSettings) -> ResourceMetadata:
    """Return the metadata. Raises NoIssuer without an issuer."""
    if not settings.resource:
        raise NoIssuer
    scopes = [grant.value for grant in settings.grants] if settings.grants_claim == "scope" else []
    return ResourceMetadata(settings.resource, [settings.issuer], scopes)
