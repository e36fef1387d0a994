"""A struct becomes the reply's bytes; JSON only, encoded once."""

from typing import Any

import falcon
import msgspec

encode = msgspec.json.Encoder().encode
_LINES = {status: falcon.code_to_http_status(status) for status in (200, 201, 202, 503)}


def reply(resp: falcon.Response, content: Any, status: int = 200) -> None:
    """Answer with `content` as JSON. The content type is the app's default."""
    resp.data = encode(content)
    resp.status = _LINES.get(status, status)


def reply_bytes(
    resp: falcon.Response, data: bytes, status: int = 200, media: str = "application/json"
) -> None:
    """Answer with bytes that were encoded before."""
    resp.data = data
    resp.status = _LINES.get(status, status)
    resp.content_type = media
