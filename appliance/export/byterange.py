"""The one form of `Range` that is answered: a single range of bytes. Pure."""

import re
from typing import NamedTuple

from appliance.export.wire import RangeNotSatisfiable

_ONE = re.compile(r"bytes=\s*(\d{0,18})-(\d{0,18})\s*", re.ASCII)


class Span(NamedTuple):
    start: int
    stop: int


def asked(header: str | None, size: int) -> Span | None:
    """None: the whole is sent, for nothing was asked or not in a form that is understood (RFC
    9110 wants that ignored). Raises RangeNotSatisfiable where none of it is there."""
    found = _ONE.fullmatch(header) if header else None
    if found is None or found.group(1, 2) == ("", ""):
        return None
    first, last = found.groups()
    if not first:
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None
    if start >= stop:
        raise RangeNotSatisfiable(details={"size": size})
    return Span(start, stop)
