"""What a failure looks like over HTTP: the status of each kind, and the one body."""

import math
from typing import Any

import falcon
import msgspec

from appliance.kernel.errors import (
    ApplianceError,
    Forbidden,
    Invalid,
    Missing,
)
from appliance.kernel.errors import (
    PayloadTooLarge as PayloadTooLarge,
)

STATUS_OF_KIND = {
    "invalid": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "missing": 404,
    "conflict": 409,
    "lost": 409,
    "exhausted": 429,
    "unavailable": 503,
    "internal": 500,
}
_encode = msgspec.json.Encoder(enc_hook=str).encode


class NoSuchRoute(Missing):
    sentence = "no such route"
    advice = "GET /api/v1/openapi.json lists the routes"


class MethodNotAllowed(Invalid):
    """`details.allow` becomes the Allow header."""

    code = "METHOD_NOT_ALLOWED"
    status = 405
    sentence = "this route does not know that method"
    advice = "the Allow header of this answer names the methods that it knows"


class UnsupportedMediaType(Invalid):
    code = "UNSUPPORTED_MEDIA_TYPE"
    status = 415
    sentence = "the body must be JSON"
    advice = "send 'Content-Type: application/json'"


class TokenInQuery(Invalid):
    code = "TOKEN_IN_QUERY"
    sentence = "a token must not be in the address, where logs and histories keep it"
    advice = "send 'Authorization: Bearer TOKEN'"


class HostRefused(Invalid):
    code = "HOST_REFUSED"
    status = 421
    sentence = "this appliance does not answer to that host name"
    advice = "use 127.0.0.1 or localhost, or add the name to [http] allowed_hosts"


class OriginRefused(Forbidden):
    code = "ORIGIN_REFUSED"
    sentence = "pages of other origins may not change anything here"
    advice = "call from the same origin, or add the page's host name to [http] allowed_hosts"


def status_of(error: ApplianceError) -> int:
    return error.status or STATUS_OF_KIND[error.kind]


def status_line(error: ApplianceError) -> str:
    return str(falcon.code_to_http_status(status_of(error)))


def body(error: ApplianceError, request_id: str) -> bytes:
    """The JSON that every failed request gets; `extra` can't displace the five keys."""
    shown: dict[str, Any] = {
        "error": error.message,
        "code": error.code,
        "details": error.details,
        "hint": error.hint,
        "request_id": request_id,
    }
    for name, value in error.extra.items():
        shown.setdefault(name, value)
    return _encode(shown)


def headers_of(error: ApplianceError) -> dict[str, str]:
    """Headers that belong to a failure: when to come back, what is allowed, how to sign in."""
    headers = {}
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after)))
    if error.kind == "unauthenticated":
        headers["www-authenticate"] = 'Bearer realm="agentlip"'
    if isinstance(error, MethodNotAllowed):
        headers["allow"] = ", ".join(error.details.get("allow", ()))
    return headers
