"""Errors over HTTP: the JSON body and the headers."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec
from falcon import code_to_http_status as code_to_http_status

from appliance.kernel.errors import ApplianceError, Forbidden, Invalid, Missing

CHALLENGE = 'Bearer realm="agentlip"'

_encode = msgspec.json.Encoder(enc_hook=str).encode


class NoSuchRoute(Missing):
    default_message = "no such route"
    default_hint = "GET /api/v1/openapi.json lists the routes"


class MethodNotAllowed(Invalid):
    """`details.allow` becomes the Allow header."""

    code = "METHOD_NOT_ALLOWED"
    status = 405
    default_message = "the route does not support this method"
    default_hint = "the Allow header lists the supported methods"


class UnsupportedMediaType(Invalid):
    code = "UNSUPPORTED_MEDIA_TYPE"
    status = 415
    default_message = "the body must be JSON"
    default_hint = "send 'Content-Type: application/json'"


class UpgradeRequired(Invalid):
    code = "UPGRADE_REQUIRED"
    status = 426
    default_message = "this path is a WebSocket, and the request has no Upgrade header"
    default_hint = "use a WebSocket client; a proxy must pass Upgrade and Connection on"


class TokenInQuery(Invalid):
    code = "TOKEN_IN_QUERY"
    default_message = "a token must not be in the URL, where logs and browser histories keep it"
    default_hint = "send 'Authorization: Bearer TOKEN'"


class HostRefused(Invalid):
    code = "HOST_REFUSED"
    status = 421
    default_message = "the Host header names an unknown host"
    default_hint = "use 127.0.0.1 or localhost, or add the name to `http.allowed_hosts`"


class OriginRefused(Forbidden):
    code = "ORIGIN_REFUSED"
    default_message = "requests from pages with other origins are not allowed"
    default_hint = "use the same origin, or add the page's host name to `http.allowed_hosts`"


def body(error: ApplianceError, request_id: str, more: Mapping[str, Any] = {}) -> bytes:
    """Return a failed request's JSON body. `more`: keys beside the error's."""
    return _encode({**more, **error.to_body(), "request_id": request_id})


def headers_of(error: ApplianceError, challenge: str = CHALLENGE) -> dict[str, str]:
    """Return an error's headers: Retry-After, Allow, Upgrade, and WWW-Authenticate with the
    challenge."""
    headers = {}
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after)))
    if error.kind == "unauthenticated":
        headers["www-authenticate"] = challenge
    if isinstance(error, MethodNotAllowed):
        headers["allow"] = ", ".join(error.details.get("allow", ()))
    if isinstance(error, UpgradeRequired):
        headers["upgrade"] = "websocket"
    return headers
