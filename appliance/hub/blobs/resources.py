"""Serves files that agents put. A body is the file itself, not JSON."""

from functools import partial
from typing import Any

import falcon

from appliance.hub.blobs import wire
from appliance.hub.blobs.service import Blobs, Body
from appliance.hub.wire import ADMIN, POST, READ
from appliance.kernel.errors import StorageFull
from appliance.kernel.route import Operation, Route
from appliance.web.byterange import RangeNotSatisfiable, send_file
from appliance.web.errors import UnsupportedMediaType
from appliance.web.media import reply
from appliance.web.responders import Responders, reply_with

# A browser saves the file, and never shows a page that somebody has put.
SHOWN_NEVER = {
    "content-disposition": "attachment",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
}


def body_of(req: Any, expected: str | None = None) -> Body:
    """Return a request's body. Raises UnsupportedMediaType for a compressed one, or Invalid."""
    if req.env.get("HTTP_CONTENT_ENCODING", "identity").lower() != "identity":
        raise UnsupportedMediaType(
            "compressed bodies are not supported", hint="send the body without Content-Encoding"
        )
    length = req.env.get("CONTENT_LENGTH")
    if not length and not req.env.get("HTTP_TRANSFER_ENCODING"):
        length = "0"
    media_type = wire.check_media_type(req.env.get("CONTENT_TYPE"))
    read = req.env["wsgi.input"].read
    return Body(read, int(length) if length else None, media_type, expected)


def _put(blobs: Blobs, req: Any, resp: falcon.Response, ref: str | None = None) -> None:
    body = body_of(req, None if ref is None else wire.digest_of(ref))
    put = blobs.put(body, req.context.principal)
    reply(resp, put, 201 if put.created else 200)


def _get(blobs: Blobs, req: Any, resp: Any, ref: str) -> None:
    file = blobs.find(ref, req.context.principal)
    send_file(req, resp, file)
    resp.stamp(SHOWN_NEVER)


def routes(blobs: Blobs) -> list[Route]:
    put, get = partial(_put, blobs), partial(_get, blobs)
    refusals = (wire.BlobTooLarge, wire.BlobQuota, wire.TooManyPuts, wire.BlobNotWritable,
                StorageFull, UnsupportedMediaType)  # fmt: skip
    return [
        Route("/api/v1/blobs", Responders(post=put), {
            "POST": Operation(POST, upload=True, reply=wire.BlobPut, status=201, repeat_status=200,
                              by_channel=True, errors=refusals,
                              summary="Put a file; the reply names it by its hash"),
        }),
        Route("/api/v1/blobs/{ref}", Responders(
            get=get, put=put, delete=reply_with(blobs.erase),
        ), {
            "GET": Operation(READ, media="application/octet-stream", repeat_status=206,
                             by_channel=True,
                             errors=(wire.NoSuchBlob, RangeNotSatisfiable, wire.BlobDamaged),
                             summary="Download a file or a byte range"),
            "PUT": Operation(POST, upload=True, reply=wire.BlobPut, status=201, repeat_status=200,
                             by_channel=True, errors=(wire.BlobMismatch, *refusals),
                             summary="Put a file whose hash is known"),
            "DELETE": Operation(ADMIN, reply=wire.BlobErased, audited=True,
                                errors=(wire.NoSuchBlob, wire.BlobNamedByBus),
                                summary="Erase a file now, although texts may name it"),
        }),
    ]  # fmt: skip
