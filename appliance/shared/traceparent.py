"""Parses the header `traceparent` from W3C Trace Context, level 1, section 3.2."""

import re

_fields = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?").fullmatch
CHARACTERS = 55  # the fields' length; a later version may append more


def parse(header: str | None) -> str | None:
    """Return a valid header's fields; None for an invalid header, which a receiver ignores."""
    match = _fields(header or "")
    if match is None or match[1] == "ff" or not match[2].strip("0") or not match[3].strip("0"):
        return None
    if match[1] == "00" and match[4]:
        return None
    return match.string[:CHARACTERS]
