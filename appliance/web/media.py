"""Encodes replies as JSON."""

from typing import Any

import falcon
import msgspec

from appliance.kernel.idempotency import Reply

encode = msgspec.json.Encoder().encode


def reply(resp: falcon.Response, content: Any, status: int = 200) -> None:
    """Reply with `content` as JSON. The content type is the app's default."""
    resp.data = encode(content)
    resp.status = status


def reply_bytes(
    resp: falcon.Response, data: bytes, status: int = 200, media: str = "application/json"
) -> None:
    """Reply with encoded bytes."""
    resp.data = data
    resp.status = status
    resp.content_type = media


def begin_event_stream(context: Any, resp: falcon.Response) -> bool:
    """Set the headers for server-sent events. Return False for HEAD, whose stream nobody would read
    or close."""
    resp.content_type = "text/event-stream"
    resp.set_header("Cache-Control", "no-cache")
    resp.set_header("X-Accel-Buffering", "no")
    return bool(context.method != "HEAD")


def reply_stored(resp: falcon.Response, result: Reply) -> None:
    """Reply to a change, or to its repetition with the same idempotency key."""
    reply_bytes(resp, result.body, result.status)
    if result.replayed:
        resp.set_header("Idempotency-Replayed", "true")
