"""Pages of a list: how long one may be, and whether another follows."""

from typing import Annotated, TypeVar

import msgspec

PageLimit = Annotated[int, msgspec.Meta(ge=1, description="Items a page; clamped to the maximum")]
"""The type of a `limit` query parameter: anything but a positive integer is refused."""

T = TypeVar("T")


def clamp(limit: int, limit_max: int) -> int:
    """`limit`, or the most that is served: asking for more is no mistake (decision 20)."""
    return min(limit, limit_max)


def cut(rows: list[T], limit: int) -> tuple[list[T], bool]:
    """A page from rows read with `limit + 1`, and whether there are more."""
    return rows[:limit], len(rows) > limit
