"""Sends a file that never changes, or the single byte range that the `Range` header requests."""

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import falcon

from appliance.kernel.errors import Invalid

_BYTES_RANGE = re.compile(r"bytes=\s*(\d{0,18})-(\d{0,18})\s*", re.ASCII)


class RangeNotSatisfiable(Invalid):
    code = "RANGE_NOT_SATISFIABLE"
    status = 416
    default_message = "the range is outside the file"
    default_hint = "use the size from the list or from Content-Range of this response"


class ByteRange(NamedTuple):
    start: int
    stop: int


class Download(NamedTuple):
    """A file to send. `chunks`: returns the bytes from `start` to before `stop`."""

    size: int
    sha256: str
    media: str
    chunks: Callable[[int, int], Iterable[bytes]]


def send_file(req: Any, resp: falcon.Response, file: Download) -> None:
    """Send the file or the requested range; 304 if the client has the file. The hash is the
    ETag."""
    etag = f'"{file.sha256}"'
    resp.set_header("ETag", etag)
    resp.set_header("Accept-Ranges", "bytes")
    resp.set_header("Cache-Control", "private, immutable")
    if _has_file(req.get_header("If-None-Match"), etag):
        resp.status = falcon.HTTP_304
        return
    span = None
    if req.get_header("If-Range") in (None, etag):
        resp.set_header("Content-Range", f"bytes */{file.size}")
        span = parse_range(req.get_header("Range"), file.size)
        resp.delete_header("Content-Range")
    start, stop = span or (0, file.size)
    if span is not None:
        resp.status = falcon.HTTP_206
        resp.set_header("Content-Range", f"bytes {start}-{stop - 1}/{file.size}")
    resp.content_type = file.media
    resp.content_length = stop - start
    if req.context.method != "HEAD":
        resp.stream = file.chunks(start, stop)


def _has_file(header: str | None, etag: str) -> bool:
    tags = [tag.strip().removeprefix("W/") for tag in (header or "").split(",")]
    return etag in tags or tags == ["*"]


def parse_range(header: str | None, size: int) -> ByteRange | None:
    """Return the requested range, or None to send the whole file: the header is missing or has
    another form (RFC 9110: ignore the header). Raises RangeNotSatisfiable for a range outside
    the file."""
    match = _BYTES_RANGE.fullmatch(header) if header else None
    if match is None or match.group(1, 2) == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None
    if start >= stop:
        raise RangeNotSatisfiable(details={"size": size})
    return ByteRange(start, stop)
