"""Reads small JSON files that this program has written."""

from pathlib import Path
from typing import TypeVar

import msgspec

from appliance.kernel.ownership import SMALL_FILE_BYTES_MAX, read_regular

T = TypeVar("T")


def read_json(path: Path, kind: type[T], bytes_max: int = SMALL_FILE_BYTES_MAX) -> T | None:
    """Return a file's decoded content; None if unreadable, not a file, or not of that kind."""
    try:
        return msgspec.json.decode(read_regular(path, bytes_max), type=kind)
    except (OSError, msgspec.DecodeError, UnicodeError):
        return None
