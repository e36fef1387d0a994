"""A page of rows is limited by a count and by bytes: both are known before the rows are read."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

T = TypeVar("T")

ROW_BYTES = 500  # of a row beside its text: ids, names, times and the keys around them
_SHORT = 128  # characters of which the exact number of bytes does not matter
_encode = msgspec.json.Encoder().encode


def text_bytes(text: str | None) -> int:
    """The length of `text` as JSON. Control characters take six bytes each there."""
    if not text:
        return 0
    return len(text) if len(text) <= _SHORT else len(_encode(text))


def take_page(
    rows: Iterable[T], limit: int, bytes_max: int, size: Callable[[T], int]
) -> tuple[list[T], bool]:
    """Rows from the front, and whether there are more.

    At most `limit` rows and `bytes_max` bytes by `size`, but at least one row, so that paging
    gets on. What lies behind the first row that does not fit is not read.
    """
    page: list[T] = []
    left = bytes_max
    for row in rows:
        left -= size(row)
        if page and (len(page) >= limit or left < 0):
            return page, True
        page.append(row)
    return page, False
