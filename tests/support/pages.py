"""Lists that come in pages."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgspec


def pages_of(
    page_after: Callable[[Any], Any],
    cursor: Any = None,
    cursor_of: Callable[[Any], Any] = attrgetter("next"),
    bytes_max: int = 1 << 20,
) -> list[Any]:
    """All pages of a list, none of which is too large."""
    pages = [page_after(cursor)]
    while pages[-1].has_more:
        pages.append(page_after(cursor_of(pages[-1])))
    assert max(len(msgspec.json.encode(page)) for page in pages) <= bytes_max
    return pages
