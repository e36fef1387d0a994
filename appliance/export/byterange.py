"""Parses the supported form of the `Range` header: a single byte range. Pure."""

import re
from typing import NamedTuple

from appliance.export.wire import RangeNotSatisfiable

_BYTES_RANGE = re.compile(r"bytes=\s*(\d{0,18})-(\d{0,18})\s*", re.ASCII)


class ByteRange(NamedTuple):
    start: int
    stop: int


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
