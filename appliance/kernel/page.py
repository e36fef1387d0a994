"""Limits a page by rows and by bytes, both known before the rows are read."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

T = TypeVar("T")

ROW_BYTES = 500  # a row without its text: ids, names, times and keys
_SHORT = 128  # below this many characters the exact byte count is not needed
_encode = msgspec.json.Encoder().encode


def text_bytes(text: str | None) -> int:
    """Return the length that `text` has as JSON, where a control character takes six bytes."""
    if not text:
        return 0
    return len(text) if len(text) <= _SHORT else len(_encode(text))


def take_page(
    rows: Iterable[T], limit: int, bytes_max: int, size: Callable[[T], int]
) -> tuple[list[T], bool]:
    """Return rows from the front, and whether there are more.

    At most `limit` rows and `bytes_max` bytes by `size`, but at least one row, so that paging
    always makes progress. Rows after the first that does not fit are not read.
    """
    page: list[T] = []
    left = bytes_max
    for row in rows:
        left -= size(row)
        if page and (len(page) >= limit or left < 0):
            return page, True
        page.append(row)
    return page, False
