"""Encodes and decodes base64 and timestamps, each with exactly one accepted spelling. Pure."""

import re
from base64 import b64decode, b64encode
from datetime import UTC, datetime

SKEW_MS = 300_000  # how far a signed timestamp may be from the reader's clock, in both directions
_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z")


def to_base64(value: bytes) -> str:
    return b64encode(value).decode()


def of_base64(text: str) -> bytes:
    """Decode base64. Raises ValueError, also for a second spelling of equal bytes: otherwise a
    signed text could be changed without changing the signature."""
    value = b64decode(text.encode("ascii"), validate=True)
    if to_base64(value) != text:
        raise ValueError("not canonical base64")
    return value


def of_timestamp(text: str) -> int:
    """Return milliseconds since 1970 for a time such as `2026-02-17T12:00:00.000Z`. Raises
    ValueError."""
    if not _TIMESTAMP.fullmatch(text):
        raise ValueError("not a UTC timestamp")
    moment = datetime.fromisoformat(text).astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (moment.days * 86_400 + moment.seconds) * 1000 + moment.microseconds // 1000


def is_current(text: str, now_ms: int) -> bool:
    """Return whether the timestamp is at most SKEW_MS from now. Raises ValueError."""
    return abs(of_timestamp(text) - now_ms) <= SKEW_MS
